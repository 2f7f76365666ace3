#pragma once

#include <string>

namespace lethe {

/// The name of this machine, for people; "localhost" where the system does not tell.
std::string host_name();

}  // namespace lethe
