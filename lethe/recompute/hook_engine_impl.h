#pragma once

namespace lethe {

/// Makes the autograd engine ask us for saved-tensor hooks while a scope is open on the thread.
/// Everything else goes to the engine that was installed before, which may be Python's. Cheap when
/// ours is installed; puts ours in front again when another engine has replaced it.
/// Throws ConfigError when saved-tensor hooks are disabled on this thread.
void install_hook_engine();

}  // namespace lethe
