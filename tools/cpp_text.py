"""What the tree checks know of C++: which files there are, and their text without comments or strings."""
import re
from pathlib import Path

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'                              # comments
    r'|R"([^()\\\s]{0,16})\(.*?\)\1"'                  # raw strings
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])\'(?:\\.|[^\'\\\n])+\'',  # strings and characters
    re.S)


def sources(root, *folders, suffixes=(".h", ".cpp", ".cu", ".cuh")):
    """The files with these suffixes below root/folder, sorted; folders that are absent are skipped."""
    found = []
    for folder in folders:
        found += [p for p in (Path(root) / folder).rglob("*") if p.is_file() and p.suffix in suffixes]
    return sorted(found)


def code_only(text):
    """Comments and the insides of literals blanked; line numbers stay."""
    def blank(match):
        token = match.group(0)
        kept = '""' if token[0] in "\"R'" else " "
        return kept + "\n" * token.count("\n")
    return _TOKEN.sub(blank, text)


def string_literals(text):
    """The literals of the text, quotes included."""
    return [m.group(0) for m in _TOKEN.finditer(text) if m.group(0)[0] in '"R']


def functions(text):
    """(name, first line, lines, parameters) of every function body, by counting braces.

    A body is a '{' at namespace or class depth whose statement holds a parameter list; the heuristic is
    exact for clang-formatted code. Lambdas belong to the function around them.
    """
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), code_only(text), flags=re.M)
    depth_of_body, depth, start, found, opened = None, 0, 0, [], None
    for at, char in enumerate(code):
        if char == "{":
            if depth_of_body is None:
                head = code[start:at]
                name = re.search(r"([~\w:]+|operator\s*\S+?)\s*\(", head)
                is_body = name and not re.search(r"\b(namespace|class|struct|enum|union)\s+[\w:]*[^()]*$", head)
                if is_body and not re.search(r"=\s*$", head):
                    depth_of_body = depth
                    line = code.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
                    opened = (name.group(1), line, _parameters(head[name.end():]))
            depth += 1
            if depth_of_body is None:
                start = at + 1
        elif char == "}":
            depth -= 1
            if depth_of_body is not None and depth == depth_of_body:
                name, line, parameters = opened
                found.append((name, line, code.count("\n", 0, at) + 2 - line, parameters))
                depth_of_body = None
            if depth_of_body is None:
                start = at + 1
        elif char == ";" and depth_of_body is None:
            start = at + 1
    return found


def _parameters(text):
    """How many parameters stand before the ')' that closes a list."""
    depth, commas, seen = 0, 0, False
    for char in text:
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            if depth == 0:
                break
            depth -= 1
        elif char == "," and depth == 0:
            commas += 1
        seen = seen or not char.isspace()
    return commas + 1 if seen else 0
