// Stands in for libFuzzer where the compiler has none: each file of a corpus, each with every bit
// of its first bytes flipped, and each cut at many places.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
    return 125;
  }
  std::uint64_t runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::vector<char> text{std::istreambuf_iterator<char>(in), {}};
    std::vector<std::uint8_t> bytes(text.begin(), text.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    for (std::size_t i = 1; i < bytes.size(); i += 1 + i / 64) {
      const std::uint8_t kept = bytes[i];
      for (int bit = 0; bit < 8; ++bit, ++runs) {
        bytes[i] = static_cast<std::uint8_t>(kept ^ 1U << bit);
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      }
      bytes[i] = kept;
      LLVMFuzzerTestOneInput(bytes.data(), i);
    }
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(runs));
  return runs == 0 ? 1 : 0;
}
