#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lethe/config/run_config.h"

namespace lethe {

struct PrepareSettings {
  std::vector<std::string> inputs;  // files or folders (find_text_files), in this order
  std::string output;               // NAME, a path without ".bin"/".idx"
  InputFormat format = InputFormat::Auto;
  std::string tokenizer = "bytes";  // "bytes", or the path of a tokenizer.json
  std::string end_of_document;      // a token that ends every document, e.g. "<|eos|>"; "" = none
  bool mask_prompts = true;         // Jsonl: prompts are masked out of the loss
  // Replace a finished NAME, or an unfinished one of other settings or inputs.
  bool overwrite = false;

  // Limits that do not change what is written.
  int64_t max_document_bytes = 256 << 20;  // of a line; of a whole file unless tokens are bytes
  int64_t mark_bytes = 64 << 20;           // input between two marks of NAME.progress; >= 1
};

struct PrepareProgress {
  int64_t bytes_done = 0;
  int64_t bytes_total = 0;
  int64_t bytes_before = 0;  // of bytes_done: what an earlier call had done
  int64_t documents = 0;
  int64_t tokens = 0;
};

/// Totals of the finished pair, whatever part an earlier, killed call did.
struct PrepareReport {
  int64_t documents = 0;
  // Not written: empty files, blank lines, records without a byte or, where prompts are masked,
  // with an empty response.
  int64_t empty_documents = 0;
  int64_t tokens = 0;
  int64_t masked_tokens = 0;
  int64_t largest_id = -1;
  int64_t input_bytes = 0;
  int64_t resumed_at_bytes = 0;    // input that an earlier call had done; 0 = began anew
  int64_t hidden_skipped = 0;      // hidden files and folders in the inputs, not looked into
  int64_t vocab_size = 0;          // of the tokenizer
  std::vector<std::string> files;  // what was written, NAME.idx last
};

/// Text to tokens on disk: NAME.bin/.idx (lethe/data/indexed_file.h), the mask's pair when a prompt
/// was masked, NAME.json (lethe/data/dataset_card.h) and, for a tokenizer of a file, its copy
/// NAME.tokenizer.json. Tokens of a record with a prompt: those of the prompt, of the response
/// (each encoded on its own), the end-of-document token; the first are masked.
///
/// Memory grows with the number of input files (their names), not with their size. Held are, of
/// byte text, a block of 1 MiB; else the largest document: of a file its text, of a line that and
/// its parsed strings (up to four times its bytes), and either way its tokens (4 bytes each, up to
/// thrice while their list grows) and about 50 bytes per byte of its longest word (a piece that
/// merges do not leave).
///
/// A killed call leaves NAME.progress and *.part files; the same call goes on from the last mark
/// and gives the same bytes as an undisturbed one. Final files appear by rename, NAME.idx last.
/// progress is called every MiB of input or record, whichever is longer, and at the end.
/// Throws ConfigError: settings without sense, an input given twice, an input or a tokenizer that
/// is a file to be written (whatever `overwrite` says). DataError: input that cannot be read or is
/// no JSON or cannot be tokenized (file, line, byte), a compressed file with InputFormat::Auto, no
/// token at all, a second call of the same NAME at work (NAME.lock), a finished NAME or an
/// unfinished one of other inputs or settings without `overwrite` (naming what differs), a document
/// beyond the limit, the disk. Deterministic. Source: issue "Training loop", B.
PrepareReport prepare(const PrepareSettings& settings,
                      const std::function<void(const PrepareProgress&)>& progress = {});

}  // namespace lethe
