// Elements of tensor files to doubles and back.
#include <bit>
#include <cmath>
#include <cstring>

#include "harness/base/check.h"
#include "harness/history/tensor_file.h"

namespace lockstep::history {
namespace {

/// IEEE binary16 to double, subnormals, infinities and NaN included.
double from_half(std::uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int mantissa = half & 0x3ff;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0x1f)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0)
    return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

/// Rounds to nearest even. std::nearbyint does it, on the value scaled to units of the last place.
std::uint16_t to_half(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::fabs(value);
  if (std::isnan(value))
    return 0x7e00;
  if (size >= 65520.0)  // Halfway to the number after the largest.
    return static_cast<std::uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = size == 0.0 ? -13 : std::max(exponent, -13);  // Lowest: subnormal, in units of 2^-24.
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  // 1024 units and more carry the exponent's lowest bit themselves.
  return static_cast<std::uint16_t>(sign |
                                    ((static_cast<std::uint32_t>(exponent + 13) << 10) + units));
}

std::uint16_t to_bfloat16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (std::isnan(value))
    return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <class T>
T load(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

double widen(std::string_view dtype, const std::byte* at) {
  if (dtype == "F64")
    return load<double>(at);
  if (dtype == "F32")
    return load<float>(at);
  if (dtype == "F16")
    return from_half(load<std::uint16_t>(at));
  if (dtype == "BF16")
    return from_bfloat16(load<std::uint16_t>(at));
  if (dtype == "I64")
    return static_cast<double>(load<std::int64_t>(at));
  if (dtype == "I32")
    return load<std::int32_t>(at);
  if (dtype == "I16")
    return load<std::int16_t>(at);
  if (dtype == "I8")
    return load<std::int8_t>(at);
  return load<std::uint8_t>(at);  // U8, BOOL
}

void narrow(std::string_view dtype, double value, std::byte* at) {
  if (dtype == "F64")
    store(at, value);
  else if (dtype == "F32")
    store(at, static_cast<float>(value));
  else if (dtype == "F16")
    store(at, to_half(value));
  else if (dtype == "BF16")
    store(at, to_bfloat16(value));
  else if (dtype == "I64")
    store(at, static_cast<std::int64_t>(value));
  else if (dtype == "I32")
    store(at, static_cast<std::int32_t>(value));
  else if (dtype == "I16")
    store(at, static_cast<std::int16_t>(value));
  else if (dtype == "I8")
    store(at, static_cast<std::int8_t>(value));
  else if (dtype == "BOOL")
    store(at, static_cast<std::uint8_t>(value != 0.0));
  else
    store(at, static_cast<std::uint8_t>(value));
}

}  // namespace

TensorData make_tensor(std::string name, std::string dtype, std::vector<std::int64_t> shape,
                       std::span<const double> values) {
  const std::size_t each = element_bytes(dtype);
  std::size_t numel = 1;
  for (const std::int64_t extent : shape)
    numel *= static_cast<std::size_t>(extent);
  LS_CHECK(each != 0);
  LS_CHECK(numel == values.size());
  TensorData tensor{std::move(name), std::move(dtype), std::move(shape),
                    std::vector<std::byte>(numel * each)};
  for (std::size_t i = 0; i < numel; ++i)
    narrow(tensor.dtype, values[i], tensor.bytes.data() + i * each);
  return tensor;
}

Result<Tensor> TensorFile::read(const TensorEntry& entry) {
  auto raw = bytes(entry);
  if (!raw)
    return raw.error();
  const std::size_t each = element_bytes(entry.dtype);
  Tensor tensor{entry.dtype, entry.shape, std::vector<double>(each == 0 ? 0 : raw->size() / each)};
  for (std::size_t i = 0; i < tensor.values.size(); ++i)
    tensor.values[i] = widen(entry.dtype, raw->data() + i * each);
  return tensor;
}

}  // namespace lockstep::history
