#include "lethe/ops/implementation.h"

#include <algorithm>
#include <array>

#include "lethe/base/error.h"
#include "lethe/base/nearest.h"
#include "lethe/core/describe.h"
#include "lethe/kernels/cpu/isa.h"
#include "lethe/ops/fused.h"

namespace lethe::ops {

// The registered operators; members see their notes.
struct FusableOps {
  static std::map<std::string, Fusable*>& all() {
    static std::map<std::string, Fusable*> ops;
    return ops;
  }

  static void add(const char* op, Fusable* fusable) { all()[op] = fusable; }

  static void choose(Fusable& op, Implementation choice) { op.choice_ = choice; }

  static std::string ran(const Fusable& op) {
    const std::string fused = fmt::format("fused ({})", kernels::isa_name(kernels::active_isa()));
    if (op.ran_fused_ && op.ran_reference_) return fused + " and reference";
    if (op.ran_fused_) return fused;
    return op.ran_reference_ ? "reference" : "";
  }

  static void forget(Fusable& op) { op.ran_fused_ = op.ran_reference_ = false; }
};

namespace {

constexpr std::array<std::pair<std::string_view, Implementation>, 3> kWords{
    {{"auto", Implementation::Auto},
     {"none", Implementation::Reference},
     {"fused", Implementation::Fused}}};

std::atomic<bool> checked{false};

bool kernel_takes(const at::Tensor& x) {
  return x.device().is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

}  // namespace

Implementation parse_implementation(std::string_view word) {
  for (const auto& [name, value] : kWords)
    if (word == name) return value;
  fail<ConfigError>("implementation: must be auto, none or fused, got '{}'; correct it", word);
}

void choose_implementations(const ImplementationChoice& choice) {
  const std::vector<std::string> names = operators_with_kernels();
  for (const auto& [op, value] : choice.overrides)
    LETHE_CHECK(ConfigError,
                std::find(names.begin(), names.end(), op) != names.end(),
                "implementation of '{}': only operators that have a kernel can be chosen; {}",
                op,
                did_you_mean(op, names, "`lethe docs` lists them"));
  for (const auto& [op, fusable] : FusableOps::all()) {
    const auto found = choice.overrides.find(op);
    FusableOps::choose(*fusable, found == choice.overrides.end() ? choice.all : found->second);
  }
}

void set_checked_mode(bool on) {
  checked = on;
}

bool checked_mode() {
  return checked;
}

std::vector<std::string> operators_with_kernels() {
  std::vector<std::string> names;
  for (const auto& [op, fusable] : FusableOps::all()) names.push_back(op);
  return names;
}

std::map<std::string, std::string> implementations_that_ran() {
  std::map<std::string, std::string> out;
  for (const auto& [op, fusable] : FusableOps::all()) {
    std::string ran = FusableOps::ran(*fusable);
    if (!ran.empty()) out.emplace(op, std::move(ran));
  }
  return out;
}

void reset_implementations_that_ran() {
  for (const auto& [op, fusable] : FusableOps::all()) FusableOps::forget(*fusable);
}

Fusable::Fusable(const char* op) : op_(op) {
  FusableOps::add(op, this);
}

bool Fusable::would_run(const at::Tensor& x) const {
  const Implementation choice = choice_;
  if (choice == Implementation::Reference) return false;
  const bool takes = kernel_takes(x);
  LETHE_CHECK(
      ConfigError,
      takes || choice == Implementation::Auto,
      "{} [implementation]: the fused kernel takes float32 or bfloat16 on the CPU, got {} on "
      "{}; cast the tensor, or choose the implementation none or auto",
      op_,
      dtype_text(x),
      x.device().str());
  return takes;
}

bool Fusable::runs(const at::Tensor& x) {
  const bool fused = would_run(x);
  (fused ? ran_fused_ : ran_reference_).store(true, std::memory_order_relaxed);
  return fused;
}

}  // namespace lethe::ops
