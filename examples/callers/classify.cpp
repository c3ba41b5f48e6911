// Classifies a photo by a compiled model: classify model.gpuc photo.jpg [labels.txt]
//
// The model's only input is one photo, f32[1,3,height,width] or f32[1,height,width,3], with ImageNet's mean and deviation taken off, as
// networks of torchvision want it. Sizes that each run decides get the photo's own, as near as the model allows. The five largest
// scores of the first output are printed, each with its class: a line of labels.txt, else a number.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gpucomp.hpp>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#include <stb/stb_image.h>
#include <stb/stb_image_resize.h>

namespace {

constexpr int channels = 3;
constexpr std::size_t most_printed = 5;
constexpr float mean[channels] = {0.485F, 0.456F, 0.406F}, deviation[channels] = {0.229F, 0.224F, 0.225F};

struct Picture {
    int width = 0, height = 0;
    std::vector<std::uint8_t> pixels; // height x width x 3
};

// Which axes of the input are height and width, and whether the channels come before them.
struct Layout {
    bool channels_first;
    const gpucomp_axis &height, &width;
};

Picture read(const char *path)
{
    Picture found;
    const std::unique_ptr<std::uint8_t, decltype(&stbi_image_free)> bytes(
        stbi_load(path, &found.width, &found.height, nullptr, channels), stbi_image_free);
    if (!bytes)
        throw std::runtime_error(std::string(path) + ": " + stbi_failure_reason());
    found.pixels.assign(bytes.get(), bytes.get() + static_cast<std::size_t>(found.width) * found.height * channels);
    return found;
}

Picture resized(Picture picture, int width, int height)
{
    if (picture.width == width && picture.height == height)
        return picture;
    Picture made{width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(width) * height * channels)};
    if (!stbir_resize_uint8_srgb(picture.pixels.data(), picture.width, picture.height, 0, made.pixels.data(), width, height, 0,
                                 channels, STBIR_ALPHA_CHANNEL_NONE, 0))
        throw std::runtime_error("the photo cannot be resized: no memory");
    return made;
}

Layout layout_of(const gpucomp_tensor_info &input)
{
    const gpucomp_axis *axes = input.axes;
    const auto is = [&](std::size_t axis, std::int64_t size) { return axes[axis].low <= size && size <= axes[axis].high; };
    if (std::string(input.dtype) == "f32" && input.rank == 4 && is(0, 1)) {
        if (is(1, channels))
            return {true, axes[2], axes[3]};
        if (is(3, channels))
            return {false, axes[1], axes[2]};
    }
    throw std::runtime_error(std::string("input ") + input.name + ": one photo of f32 with 3 channels expected");
}

// The size of an axis that is nearest to that of the photo.
int nearest(const gpucomp_axis &axis, int own)
{
    const std::int64_t most = axis.high / axis.multiple * axis.multiple, whole = (own + axis.multiple / 2) / axis.multiple;
    return static_cast<int>(std::clamp(whole * axis.multiple, std::min(axis.low, most), most));
}

std::vector<float> normalised(const Picture &picture, bool channels_first)
{
    const std::size_t area = static_cast<std::size_t>(picture.width) * picture.height;
    std::vector<float> found(area * channels);
    for (std::size_t at = 0; at < area; at++)
        for (std::size_t c = 0; c < channels; c++) {
            const float value = static_cast<float>(picture.pixels[at * channels + c]) / 255.0F;
            found[channels_first ? c * area + at : at * channels + c] = (value - mean[c]) / deviation[c];
        }
    return found;
}

std::vector<float> scores_of(const gpucomp::Model &model, const Picture &photo)
{
    if (model.info().inputs != 1 || model.info().outputs < 1)
        throw std::runtime_error("a model with one input expected: a photo");
    const gpucomp_tensor_info input = model.input(0);
    const Layout layout = layout_of(input);
    const Picture picture = resized(photo, nearest(layout.width, photo.width), nearest(layout.height, photo.height));
    const std::vector<float> values = normalised(picture, layout.channels_first);
    const std::int64_t first[] = {1, channels, picture.height, picture.width}, last[] = {1, picture.height, picture.width, channels};
    const gpucomp_tensor given = gpucomp::tensor(values.data(), values.size(), layout.channels_first ? first : last, 4);

    gpucomp::Context context(model);
    context.plan({given});
    std::vector<std::vector<std::uint8_t>> memory;
    std::vector<gpucomp_tensor> outputs;
    for (std::size_t number = 0; number < model.info().outputs; number++) {
        const auto shape = context.output_shape(number);
        const std::size_t bytes = std::accumulate(shape.begin(), shape.end(), model.output(number).element_bytes,
                                                  [](std::size_t product, std::int64_t n) { return product * n; });
        memory.emplace_back(bytes);
        outputs.push_back(gpucomp::tensor(memory.back().data(), bytes));
    }
    context.run({given}, outputs);
    if (std::string(model.output(0).dtype) != "f32")
        throw std::runtime_error(std::string("output ") + model.output(0).name + ": scores of f32 expected");
    const auto *scores = reinterpret_cast<const float *>(memory[0].data());
    return {scores, scores + memory[0].size() / sizeof(float)};
}

void print(const std::vector<float> &scores, const std::vector<std::string> &labels)
{
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t count = std::min(most_printed, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                      [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    for (std::size_t rank = 0; rank < count; rank++) {
        const std::size_t found = order[rank];
        std::printf("%9.5f  %s\n", static_cast<double>(scores[found]),
                    found < labels.size() ? labels[found].c_str() : std::to_string(found).c_str());
    }
}

} // namespace

int main(int count, char **arguments)
{
    if (count < 3 || count > 4) {
        std::cerr << "usage: classify model.gpuc photo.jpg [labels.txt]\n";
        return 2;
    }
    try {
        std::vector<std::string> labels;
        if (count == 4) {
            std::ifstream file(arguments[3]);
            if (!file)
                throw std::runtime_error(std::string(arguments[3]) + ": cannot be read");
            for (std::string line; std::getline(file, line);)
                labels.push_back(line);
        }
        const gpucomp::Model model(arguments[1]);
        print(scores_of(model, read(arguments[2])), labels);
    } catch (const std::exception &error) {
        std::cerr << "classify: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
