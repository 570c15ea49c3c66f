#include "data/tokenizer.hpp"

#ifdef MINIPIPE_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

#include <memory>

#include "schedules/error.hpp"

namespace minipipe::data {

#ifdef MINIPIPE_HAVE_SENTENCEPIECE
LineTokenizer load_sentencepiece(const std::string& model) {
  auto processor = std::make_shared<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->Load(model);
  if (!status.ok()) {
    throw InputError("--sentencepiece: '" + model + "' cannot be loaded as a SentencePiece model (" + status.ToString() +
                     "); give the .model file that spm_train writes");
  }
  LineTokenizer tokenizer;
  tokenizer.vocab = processor->GetPieceSize();
  tokenizer.encode = [processor](const std::string& line) {
    std::vector<int> ids;
    const auto done = processor->Encode(line, &ids);
    if (!done.ok()) throw RunError("SentencePiece cannot encode a line: " + done.ToString());
    if (processor->eos_id() >= 0) ids.push_back(processor->eos_id());
    return std::vector<std::int32_t>(ids.begin(), ids.end());
  };
  return tokenizer;
}
#else
LineTokenizer load_sentencepiece(const std::string& model) {
  throw InputError("--sentencepiece: '" + model +
                   "' cannot be used, as this program was built without SentencePiece; install libsentencepiece-dev and build "
                   "again, or leave the option out for one token per byte");
}
#endif

}  // namespace minipipe::data
