#include <cstring>
#include <map>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/DefaultDtype.h>

#include "lethe/core/live_blocks.h"
#include "lethe/recompute/operator_log_impl.h"
#include "lethe/recompute/recompute.h"
#include "lethe/recompute/replay_context_impl.h"

namespace lethe {
namespace {

struct Part {
  std::function<std::any()> capture;
  std::function<void(const std::any&)> install;
};

// In order of registration.
struct Parts {
  std::mutex mutex;
  int64_t next_id = 0;
  std::map<int64_t, Part> parts;
};

Parts& registered() {
  static auto* const instance = new Parts;
  return *instance;
}

std::map<int64_t, Part> registered_now() {
  const std::lock_guard lock(registered().mutex);
  return registered().parts;
}

// Held from the moment a replay lends its state to the default generator until the generator has
// its own again: one generator serves all threads.
std::recursive_mutex& generator_mutex() {
  static auto* const instance = new std::recursive_mutex;
  return *instance;
}

void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
}

// Read by backend: the getter without one throws where a program set the backends apart.
MatmulPrecision matmul_precision() {
  const at::Context& context = at::globalContext();
  return {context.float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL),
          context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL)};
}

// First by the setting for all backends, which some kernels read too, then what it does not reach.
void set_matmul_precision(const MatmulPrecision& precision) {
  at::Context& context = at::globalContext();
  const bool bf16 = precision.mkldnn == at::Float32Precision::BF16;
  const bool tf32 = precision.cuda == at::Float32Precision::TF32;
  context.setFloat32MatmulPrecision(bf16 ? "medium" : tf32 ? "high" : "highest");
  if (matmul_precision() == precision) return;
  context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL, precision.cuda);
  context.setFloat32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL, precision.mkldnn);
}

}  // namespace

at::Tensor random_state() {
  const NoteOperators unnoted(nullptr);
  const ProducerTag producer("recompute.random_state");
  at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  describe_block(state);
  return state;
}

ReplayContext::Globals ReplayContext::Globals::now() {
  const at::Context& context = at::globalContext();
  return {c10::get_default_dtype_as_scalartype(),
          context.deterministicAlgorithms(),
          context.deterministicAlgorithmsWarnOnly(),
          lethe::matmul_precision()};
}

void ReplayContext::Globals::install() const {
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_dtype));
  at::globalContext().setDeterministicAlgorithms(deterministic, warn_only);
  set_matmul_precision(matmul_precision);
}

ReplayContext::AutocastDtypes ReplayContext::autocast_dtypes() {
  AutocastDtypes dtypes{};
  for (size_t i = 0; i < dtypes.size(); ++i)
    dtypes[i] = at::autocast::get_autocast_dtype(at::autocast::_AUTOCAST_SUPPORTED_DEVICES[i]);
  return dtypes;
}

void ReplayContext::set_autocast_dtypes(const AutocastDtypes& dtypes) {
  for (size_t i = 0; i < dtypes.size(); ++i)
    at::autocast::set_autocast_dtype(at::autocast::_AUTOCAST_SUPPORTED_DEVICES[i], dtypes[i]);
}

ReplayContext::ReplayContext(bool random, at::Tensor& last_random)
    : keys_(c10::impl::tls_local_dispatch_key_set()),
      autocast_(autocast_dtypes()),
      globals_(Globals::now()) {
  for (const auto& [id, part] : registered_now()) parts_.emplace_back(id, part.capture());
  if (!random) return;
  const at::Tensor now = random_state();
  const bool same =
      last_random.defined() &&
      std::memcmp(last_random.const_data_ptr(), now.const_data_ptr(), now.nbytes()) == 0;
  if (!same) {
    last_random = now;
    own_bytes_ = static_cast<int64_t>(now.nbytes());
  }
  random_ = last_random;
}

struct ReplayContext::Installed::Before {
  explicit Before(const ReplayContext& context) : keys(context.keys_), grad(true) {}

  c10::impl::ForceDispatchKeyGuard keys;
  at::AutoGradMode grad;
  AutocastDtypes autocast = autocast_dtypes();
  bool autocast_cache = at::autocast::is_autocast_cache_enabled();
  Globals globals = Globals::now();
  bool globals_changed = false;
  std::vector<std::pair<std::function<void(const std::any&)>, std::any>> parts;
  std::unique_lock<std::recursive_mutex> generator;
  at::Tensor random;
};

ReplayContext::Installed::Installed(const ReplayContext& context)
    : before_(std::make_unique<Before>(context)) {
  try {
    install(context);
  } catch (...) {  // a registered part may throw; what is installed goes back
    restore();
    throw;
  }
}

void ReplayContext::Installed::install(const ReplayContext& context) {
  set_autocast_dtypes(context.autocast_);
  // A cast that forward cached belongs to the graph outside.
  at::autocast::set_autocast_cache_enabled(false);
  if (before_->globals != context.globals_) {
    context.globals_.install();
    before_->globals_changed = true;
  }
  const auto registered = registered_now();
  for (const auto& [id, value] : context.parts_) {
    const auto part = registered.find(id);
    if (part == registered.end()) continue;
    std::any now = part->second.capture();
    part->second.install(value);
    before_->parts.emplace_back(part->second.install, std::move(now));
  }
  if (!context.random_.defined()) return;
  before_->generator = std::unique_lock(generator_mutex());
  before_->random = random_state();
  set_random_state(context.random_);
}

void ReplayContext::Installed::restore() {
  if (before_->random.defined()) set_random_state(before_->random);
  if (before_->generator.owns_lock()) before_->generator.unlock();
  for (auto part = before_->parts.rbegin(); part != before_->parts.rend(); ++part)
    part->first(part->second);
  if (before_->globals_changed) before_->globals.install();
  at::autocast::set_autocast_cache_enabled(before_->autocast_cache);
  set_autocast_dtypes(before_->autocast);
}

ReplayContext::Installed::~Installed() {
  restore();
}

ContextPart::ContextPart(std::function<std::any()> capture,
                         std::function<void(const std::any&)> install) {
  const std::lock_guard lock(registered().mutex);
  id_ = registered().next_id++;
  registered().parts.emplace(id_, Part{std::move(capture), std::move(install)});
}

ContextPart::~ContextPart() {
  const std::lock_guard lock(registered().mutex);
  registered().parts.erase(id_);
}

}  // namespace lethe
