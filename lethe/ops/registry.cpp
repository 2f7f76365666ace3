#include "lethe/ops/registry.h"

#include <algorithm>

namespace lethe::ops {

std::vector<OperatorInfo> registered_operators() {
  std::vector<OperatorInfo> out;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("lethe::")) continue;
    const auto handle = dispatcher.findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
    OperatorInfo info{.name = name.name.substr(7)};
    info.schema = c10::toString(handle.schema());
    const std::pair<const char*, c10::DispatchKey> keys[] = {{"CPU", c10::DispatchKey::CPU},
                                                             {"CUDA", c10::DispatchKey::CUDA},
                                                             {"Meta", c10::DispatchKey::Meta}};
    for (const auto& [device, key] : keys)
      if (handle.hasKernelForDispatchKey(key)) info.devices.emplace_back(device);
    info.differentiable = handle.hasKernelForDispatchKey(c10::DispatchKey::Autograd) ||
                          handle.hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU);
    out.push_back(std::move(info));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

}  // namespace lethe::ops
