// Reads an array of a fixture that `dsa-crosscheck fixtures export NAME --raw FOLDER` wrote, and prints its values.
// g++ -std=c++17 -O2 read_fixture.cpp -o read_fixture && ./read_fixture FOLDER ARRAY
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <regex>
#include <sstream>

struct Array { std::string dtype; std::vector<size_t> shape; std::string bytes; };  // C order, little-endian

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Array load(const std::string& folder, const std::string& name) {  // fixture.json: an array a line, keys in this order
  const std::regex line(
      R"x(\{"name": "([^"]+)", "dtype": "([^"]+)", "storage": "[^"]+", "file": "([^"]+)", "shape": \[([^\]]*))x");
  const std::string index = read(folder + "/fixture.json");
  for (std::sregex_iterator at(index.begin(), index.end(), line), end; at != end; ++at) {
    if ((*at)[1] != name) continue;
    Array array{(*at)[2], {}, read(folder + "/" + (*at)[3].str())};
    std::istringstream sizes((*at)[4]);
    for (std::string size; std::getline(sizes, size, ',');) array.shape.push_back(std::stoul(size));
    return array;
  }
  throw std::runtime_error("no array " + name);
}
template <class T> T at(const Array& a, size_t i) { T x; a.bytes.copy((char*)&x, sizeof x, i * sizeof x); return x; }

double small(unsigned code, int exponent, int mantissa, int bias) {  // a float of so many bits, below its sign; no NaN
  const unsigned m = code & ((1u << mantissa) - 1), e = (code >> mantissa) & ((1u << exponent) - 1);
  const double size = std::ldexp(e ? m + (1u << mantissa) : m, int(e ? e : 1) - bias - mantissa);
  return code >> (exponent + mantissa) & 1 ? -size : size;
}

double value(const Array& a, size_t i) {
  if (a.dtype == "float64") return at<double>(a, i);
  if (a.dtype == "float32") return at<float>(a, i);
  if (a.dtype == "int64") return double(at<int64_t>(a, i));
  if (a.dtype == "int32") return at<int32_t>(a, i);
  if (a.dtype == "bfloat16") return at<float>({"", {}, std::string(2, '\0') + a.bytes.substr(2 * i, 2)}, 0);
  const uint8_t code = at<uint8_t>(a, i);
  if (a.dtype == "uint8") return code;
  if (a.dtype == "float8_e4m3fn") return (code & 0x7f) == 0x7f ? NAN : small(code, 4, 3, 7);
  if (a.dtype == "float8_e4m3fnuz") return code == 0x80 ? NAN : small(code, 4, 3, 8);
  if (a.dtype == "float8_e8m0fnu") return code == 0xff ? NAN : std::ldexp(1.0, code - 127);
  if (a.dtype == "float4_e2m1fn") return small(code, 2, 1, 1);
  throw std::runtime_error("unknown dtype " + a.dtype);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Array array = load(argv[1], argv[2]);
  size_t count = 1;
  for (size_t size : array.shape) count *= size;
  for (size_t i = 0; i < count; ++i) std::printf("%.17g\n", value(array, i));
}
