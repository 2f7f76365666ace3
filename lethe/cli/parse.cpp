#include "lethe/cli/parse.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "lethe/base/nearest.h"
#include "lethe/cli/help.h"
#include "lethe/config/error_list.h"
#include "lethe/config/settings_layer.h"

namespace lethe {
namespace {

// What CLI11 puts between two uses of one list flag.
constexpr const char* kSeparator = "";
// Of one use. CLI11 takes its own "no limit" to mean one word a use.
constexpr int kMaxListWords = 1 << 20;

bool looks_like_flag(const std::string& word) {
  return word.size() > 2 && word.rfind("--", 0) == 0;
}

/// A flag as CLI11 holds it; negated = the "--no-" form of a bool.
struct KnownFlag {
  const Setting* row = nullptr;
  std::string name;
  bool negated = false;
  CLI::Option* option = nullptr;

  [[nodiscard]] std::string shown() const { return (negated ? "--no-" : "--") + name; }
};

/// The parser of one command: declares every name of the schema, then reads what CLI11 found.
class CommandParser {
 public:
  explicit CommandParser(const CommandInfo& info) : info_(info), app_(std::string(info.summary)) {
    app_.set_help_flag("");
    app_.allow_extras();
    app_.allow_windows_style_options(false);
    for (const Setting& row : settings()) {
      if (row.status == SettingStatus::NotBuilt || !row.applies_to(info.bit)) continue;
      declare(row, row.flag);
      for (const std::string& alias : row.aliases) declare(row, alias);
    }
    for (const CommonFlag& flag : common_flags(info_.bit)) declare_common(flag);
  }

  Invocation parse(std::vector<std::string> words) {
    Invocation out;
    out.command = info_.name;
    out.raw.command = info_.name;
    out.help = std::find(words.begin(), words.end(), "--help") != words.end() ||
               std::find(words.begin(), words.end(), "-h") != words.end();
    if (out.help) return out;
    run(std::move(words));
    out.print_config = !app_["--print-config"]->empty();
    out.dry_run = is_given("--dry-run");
    out.print_optimizer = is_given("--print-optimizer");
    out.raw.config_files = app_["--config"]->results();
    for (const KnownFlag& flag : known_) add_uses(flag, out.raw.command_line);
    for (const std::string& file : out.raw.config_files) check_value("--config", file);
    sort_extras(out.positional);
    out.raw.errors = errors_.texts();
    return out;
  }

 private:
  void declare(const Setting& row, const std::string& name) {
    KnownFlag flag{&row, name, false, nullptr};
    if (row.type == SettingType::Bool) {
      flag.option = app_.add_flag("--" + name)->disable_flag_override();
      known_.push_back(flag);
      flag.negated = true;
      flag.option = app_.add_flag("--no-" + name)->disable_flag_override();
    } else {
      flag.option = app_.add_option("--" + name);
      if (is_list(row.type)) {
        flag.option->expected(1, kMaxListWords);
        flag.option->inject_separator();
      } else {
        flag.option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      }
    }
    known_.push_back(flag);
  }

  /// A flag without value, which the command may not have.
  [[nodiscard]] bool is_given(const char* flag) {
    const CLI::Option* option = app_.get_option_no_throw(flag);
    return option != nullptr && !option->empty();
  }

  void declare_common(const CommonFlag& flag) {
    const std::string name = "--" + std::string(flag.flag);
    if (flag.value.empty()) {
      app_.add_flag(name)->disable_flag_override();
    } else {
      app_.add_option(name)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }

  /// CLI11 takes the words from the back.
  void run(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    try {
      app_.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
      fail<ConfigError>(
          "lethe {} [usage]: must be flags with their values, got a command line that breaks this "
          "('{}'); see lethe {} --help",
          info_.name,
          error.what(),
          info_.name);
    }
  }

  void add_uses(const KnownFlag& flag, std::vector<GivenSetting>& out) {
    GivenSetting one;
    one.name = flag.name;
    one.shown = flag.shown();
    one.origin = kCommandLineOrigin;
    if (flag.row->type == SettingType::Bool) {
      one.words = {flag.negated ? "false" : "true"};
      out.insert(out.end(), flag.option->count(), one);
      return;
    }
    for (const std::string& word : flag.option->results()) {
      check_value(one.shown, word);
      if (!is_list(flag.row->type)) {
        one.words = {word};
        out.push_back(one);
      } else if (word == kSeparator) {
        if (!one.words.empty()) out.push_back(one);
        one.words.clear();
      } else {
        one.words.push_back(word);
      }
    }
    if (is_list(flag.row->type) && !one.words.empty()) out.push_back(one);
  }

  /// CLI11 takes the next word as the value, whatever it is: "--output --overwrite" lost its value.
  void check_value(const std::string& shown, const std::string& word) {
    if (looks_like_flag(word) && (find_name(word) || is_common(word)))
      errors_.add(fmt::format(
          "{} [usage]: must have a value, got the flag '{}' in its place; put the value between",
          shown,
          word));
  }

  [[nodiscard]] bool is_common(const std::string& word) const {
    const auto flags = common_flags(info_.bit);
    return std::any_of(flags.begin(), flags.end(), [&](const CommonFlag& flag) {
      return word.substr(2) == flag.flag;
    });
  }

  /// The row of "--name", "--name=value" or "--no-name".
  static const Setting* find_name(const std::string& word) {
    const std::string name = word.substr(2, word.find('=') - 2);
    if (name.find('_') != std::string::npos) return nullptr;
    if (const Setting* row = find_setting(name)) return row;
    const Setting* positive = name.rfind("no-", 0) == 0 ? find_setting(name.substr(3)) : nullptr;
    return positive != nullptr && positive->type == SettingType::Bool ? positive : nullptr;
  }

  void sort_extras(std::vector<std::string>& positional) {
    bool after_unknown = false;
    bool any_unknown = false;
    for (const std::string& word : app_.remaining()) {
      if (word.size() > 1 && word.front() == '-') {
        refuse_flag(word.substr(0, word.find('=')));
        after_unknown = any_unknown = true;
      } else if (!after_unknown) {
        // The words behind an unknown flag may be its values.
        positional.push_back(word);
      }
    }
    if (!any_unknown) check_positional(positional);
  }

  /// A word that no declared flag took: the settings know why it is refused.
  void refuse_flag(const std::string& word) {
    GivenSetting given;
    given.shown = word;
    given.name = word;
    if (looks_like_flag(word)) {
      const Setting* row = find_name(word);
      given.name = row != nullptr ? row->flag : word.substr(2);
    }
    std::vector<std::string> common;
    for (const CommonFlag& flag : common_flags(info_.bit))
      common.push_back("--" + std::string(flag.flag));
    errors_.collect([&] { (void)usable_setting(info_.bit, given, common); });
  }

  void check_positional(const std::vector<std::string>& words) {
    const std::string_view form = info_.positional;
    const bool many = form.ends_with("...") || form.ends_with("...]");
    const size_t least = form.empty() || form.front() == '[' ? 0 : 1;
    if (words.size() >= least && (many || words.size() <= (form.empty() ? 0 : 1))) return;
    errors_.add(
        fmt::format("lethe {} [usage]: must be given {}, got {} ({}); see lethe {} --help",
                    info_.name,
                    form.empty() ? "flags only" : fmt::format("{}{}", many ? "" : "one ", form),
                    words.empty() ? "none" : fmt::format("{} words", words.size()),
                    fmt::join(words, " "),
                    info_.name));
  }

  const CommandInfo& info_;
  CLI::App app_;
  std::vector<KnownFlag> known_;
  ErrorList errors_;
};

const CommandInfo& named_command(const std::string& name) {
  const CommandInfo* info = find_command(name);
  if (info != nullptr) return *info;
  const auto later = commands_not_built();
  LETHE_CHECK(ConfigError,
              std::find(later.begin(), later.end(), name) == later.end(),
              "lethe {} [not-built]: must be a command of this build, got one that the "
              "specification knows and this "
              "build does not have yet; see lethe --help",
              name);
  std::vector<std::string> names;
  for (const CommandInfo& command : commands()) names.emplace_back(command.name);
  fail<ConfigError>("lethe {} [unknown]: must start with a command ({}), got '{}'; {}",
                    name,
                    fmt::join(names, ", "),
                    name,
                    did_you_mean(name, names, "see lethe --help"));
}

}  // namespace

Invocation parse_command_line(const std::vector<std::string>& words) {
  Invocation top;
  top.help = true;
  if (words.empty() || words.front() == "--help" || words.front() == "-h") return top;
  // "data prepare" is one command of two words.
  const bool two = words.size() > 1 && find_command(words[0] + " " + words[1]) != nullptr;
  const CommandInfo& info = named_command(two ? words[0] + " " + words[1] : words[0]);
  return CommandParser(info).parse({words.begin() + (two ? 2 : 1), words.end()});
}

}  // namespace lethe
