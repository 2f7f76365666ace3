#include "lethe/train/progress.h"

#include <fmt/format.h>

#include "lethe/base/format.h"

namespace lethe {

std::string progress_line(const StepReport& report, int64_t total_steps, double seconds_left) {
  const std::string total = std::to_string(total_steps);
  std::string line =
      fmt::format("step {:>{}}/{}  loss {:.4f}", report.step, total.size(), total, report.loss);
  if (report.loss_mtp) line += fmt::format("  mtp {:.4f}", *report.loss_mtp);
  if (report.loss_kl) line += fmt::format("  kl {:.4f}", *report.loss_kl);
  return line +
         fmt::format("  norm {:.3f}  lr {:.2e}  {} tok/s  saved {}  live {}  peak {}  left {}",
                     report.grad_norm,
                     report.learning_rate,
                     count_text(report.tokens_per_second),
                     bytes_text(report.saved_bytes),
                     bytes_text(report.live_bytes),
                     bytes_text(report.peak_bytes),
                     duration_text(seconds_left));
}

}  // namespace lethe
