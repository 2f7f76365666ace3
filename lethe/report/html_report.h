#pragma once

#include <filesystem>

namespace lethe::report {

/// Writes one self-contained HTML page about a run: summary, charts of loss, gradient norm, bytes,
/// learning rate and speed, and every fact of the record. The page loads nothing: it opens offline.
///
/// record  a run record: JSON objects, one a line, each with "event":
///           start  first line; every further field is shown as a fact of the run. `bigram_entropy`
///                  (nats per byte) is also drawn as the line that a trivial model reaches
///           step   step, loss; where present loss_mtp, loss_kl, loss_balance, grad_norm, lr,
///                  tokens_per_second, live_bytes, peak_bytes
///           eval   step, valid_loss
///           end    every further field is shown as a fact; `reason` says why the run ended
///         Other events and other fields are for other readers. A last line that is cut off (the
///         run was killed while it wrote) is left out, and the page says so. null is a gap in a
///         line.
/// output  the page; replaced in one step, so that a reader never sees half of it.
///
/// Throws DataError: the record cannot be read, is empty, does not begin with "start", or has a
/// malformed line that is not the last; the page cannot be written. Same record, same bytes.
void make_report(const std::filesystem::path& record, const std::filesystem::path& output);

}  // namespace lethe::report
