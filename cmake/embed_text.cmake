# Run at build time by lethe_embed().
file(READ "${FILE}" text)
string(FIND "${text}" ")LETHE_TEXT\"" at)
if(text STREQUAL "" OR NOT at EQUAL -1)
  message(FATAL_ERROR "${FILE} is empty or holds the end mark of the literal that it would be put into")
endif()
file(WRITE "${SOURCE}" "#include \"lethe/report/page/text.h\"

namespace lethe::report {
const std::string_view ${CONSTANT} = R\"LETHE_TEXT(${text})LETHE_TEXT\";
}  // namespace lethe::report
")
