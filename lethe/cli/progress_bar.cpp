#include "lethe/cli/progress_bar.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lethe/base/format.h"

namespace lethe {

using namespace std::chrono_literals;

namespace {

// The last column stays free: some terminals begin a new line when it is written.
size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

std::string line_text(const ProgressBar::Amount& amount, double spent, const std::string& facts) {
  constexpr size_t kWidth = 24;
  const auto total = static_cast<double>(std::max<int64_t>(amount.total, 1));
  const double share = static_cast<double>(amount.done) / total;
  const double speed =
      static_cast<double>(amount.done - amount.before) / std::max(spent, 1e-3);  // bytes per second
  const auto left = static_cast<double>(amount.total - amount.done);
  const auto filled = std::min(kWidth, static_cast<size_t>(share * static_cast<double>(kWidth)));
  return fmt::format("[{}{}] {:3.0f} %  {} of {}  {}/s  {}  left {}",
                     std::string(filled, '#'),
                     std::string(kWidth - filled, '.'),
                     100 * share,
                     bytes_text(amount.done),
                     bytes_text(amount.total),
                     bytes_text(static_cast<int64_t>(speed)),
                     facts,
                     duration_text(speed > 0 ? left / speed : 0));
}

}  // namespace

ProgressBar::ProgressBar(std::ostream& out) : out_(out), terminal_(::isatty(STDERR_FILENO) == 1) {
  if (!terminal_) next_ = begin_ + 10s;  // short work stays silent in a log
}

ProgressBar::~ProgressBar() {
  finish();
}

void ProgressBar::show(const Amount& amount, const std::string& facts) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? Clock::duration(100ms) : Clock::duration(10s));
  const double spent = std::chrono::duration<double>(now - begin_).count();
  std::string line = line_text(amount, spent, facts);
  if (terminal_) line.resize(std::min(line.size(), terminal_columns() - 1));
  out_ << (terminal_ ? "\r\x1b[K" : "") << line << (terminal_ ? "" : "\n") << std::flush;
  drawn_ = terminal_;
}

void ProgressBar::finish() {
  if (drawn_) out_ << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace lethe
