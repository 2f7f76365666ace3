#pragma once

#include <any>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lethe {

/// How float32 products of matrices are rounded, by backend.
struct MatmulPrecision {
  at::Float32Precision cuda, mkldnn;
  bool operator==(const MatmulPrecision&) const = default;
};

/// What a region's function reads besides its arguments, as it was when forward began: random
/// state, autocast, default dtype, determinism, precision of matrix products, registered parts
/// (spec 3 1.3, K4 and K5).
class ReplayContext final {
 public:
  /// random: with the state of the default generator; `last_random`, the snapshot taken before, is
  /// used again where nothing was drawn since.
  ReplayContext(bool random, at::Tensor& last_random);

  /// The bytes that this snapshot does not share with an earlier one.
  [[nodiscard]] int64_t own_bytes() const { return own_bytes_; }

  /// Installs the context for a replay on this thread, with grad mode on; undoes all of it.
  class [[nodiscard]] Installed final {
   public:
    explicit Installed(const ReplayContext& context);
    ~Installed();
    Installed(const Installed&) = delete;
    Installed& operator=(const Installed&) = delete;

   private:
    struct Before;
    void install(const ReplayContext& context);
    void restore();

    std::unique_ptr<Before> before_;
  };

 private:
  struct Globals {
    at::ScalarType default_dtype;
    bool deterministic, warn_only;
    MatmulPrecision matmul_precision;
    bool operator==(const Globals&) const = default;
    static Globals now();
    void install() const;
  };

  using AutocastDtypes =
      std::array<at::ScalarType, at::autocast::_AUTOCAST_SUPPORTED_DEVICES.size()>;
  static AutocastDtypes autocast_dtypes();
  static void set_autocast_dtypes(const AutocastDtypes& dtypes);

  c10::impl::LocalDispatchKeySet keys_;
  AutocastDtypes autocast_;
  Globals globals_;
  std::vector<std::pair<int64_t, std::any>> parts_;
  at::Tensor random_;
  int64_t own_bytes_ = 0;
};

/// State of the default CPU generator, 5056 bytes.
at::Tensor random_state();

}  // namespace lethe
