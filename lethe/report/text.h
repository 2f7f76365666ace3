#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace lethe::report {

/// Text with the five characters that mean something to HTML replaced, for content and attributes.
std::string escape_html(std::string_view text);

/// JSON for a script element: no '<' is left that could end the element.
std::string script_json(const nlohmann::ordered_json& value);

/// A field for a reader: text as it is, numbers short, anything else as JSON.
std::string value_text(const nlohmann::ordered_json& value);

}  // namespace lethe::report
