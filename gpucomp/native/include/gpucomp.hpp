// gpucomp.hpp: the C interface of gpucomp.h for C++ 17. Objects free what they own; a failed call throws gpucomp::Error.
//
//     gpucomp::Model model("model.gpuc");
//     gpucomp::Context context(model);
//     std::vector<float> scores(1000);
//     context.run({gpucomp::tensor(pixels.data(), pixels.size())}, {gpucomp::tensor(scores.data(), scores.size())});
#ifndef GPUCOMP_HPP
#define GPUCOMP_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpucomp.h"

namespace gpucomp {

// What a call told: `code()` is the number of a GPC code.
class Error : public std::runtime_error {
public:
    explicit Error(const gpucomp_error &error) : std::runtime_error(error.text), code_(error.code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

namespace detail {

// Call a function of C with an error behind its arguments.
template <typename Function, typename... Arguments> void call(Function function, Arguments... arguments)
{
    gpucomp_error error = GPUCOMP_ERROR_INIT;
    if (function(arguments..., &error))
        throw Error(error);
}

} // namespace detail

// `count` elements at `data`; see gpucomp_tensor. `shape` is kept by the caller, and may be left out where the model fixes it.
template <typename Element>
gpucomp_tensor tensor(Element *data, std::size_t count, const std::int64_t *shape = nullptr, std::size_t rank = 0)
{
    gpucomp_tensor made = GPUCOMP_TENSOR_INIT;
    made.data = const_cast<void *>(static_cast<const void *>(data)); // an input is not written
    made.bytes = count * sizeof(Element);
    made.shape = shape;
    made.rank = rank;
    return made;
}

// `bytes` on the model's device: an address of CUDA or HIP, or a cl_mem; see gpucomp_tensor.
inline gpucomp_tensor device_tensor(void *data, std::size_t bytes, const std::int64_t *shape = nullptr, std::size_t rank = 0)
{
    gpucomp_tensor made = tensor(static_cast<char *>(data), bytes, shape, rank);
    made.memory = GPUCOMP_DEVICE;
    return made;
}

// An opened file. Contexts share it, and it must outlive them.
class Model {
public:
    explicit Model(const std::string &path, const gpucomp_open_options *options = nullptr)
    {
        gpucomp_model *made = nullptr;
        detail::call(gpucomp_open, path.c_str(), options, &made);
        handle_.reset(made);
    }

    gpucomp_model_info info() const
    {
        gpucomp_model_info found{};
        found.size = sizeof found;
        detail::call(gpucomp_describe, get(), &found);
        return found;
    }

    gpucomp_tensor_info input(std::size_t number) const { return described(gpucomp_input, number); }
    gpucomp_tensor_info output(std::size_t number) const { return described(gpucomp_output, number); }
    gpucomp_tensor_info state(std::size_t number) const { return described(gpucomp_state, number); }
    const gpucomp_model *get() const noexcept { return handle_.get(); }

private:
    template <typename Function> gpucomp_tensor_info described(Function function, std::size_t number) const
    {
        gpucomp_tensor_info found{};
        found.size = sizeof found;
        detail::call(function, get(), number, &found);
        return found;
    }

    struct Close {
        void operator()(gpucomp_model *model) const noexcept { gpucomp_close(model); }
    };
    std::unique_ptr<gpucomp_model, Close> handle_;
};

// Memory for one run at a time, for one thread at a time.
class Context {
public:
    explicit Context(const Model &model, const gpucomp_context_options *options = nullptr)
    {
        gpucomp_context *made = nullptr;
        detail::call(gpucomp_context_create, model.get(), options, &made);
        handle_.reset(made);
    }

    void run(const std::vector<gpucomp_tensor> &inputs, const std::vector<gpucomp_tensor> &outputs)
    {
        detail::call(gpucomp_run, get(), inputs.data(), inputs.size(), outputs.data(), outputs.size());
    }

    // As `run`, without waiting for the results: see gpucomp_enqueue.
    void enqueue(const std::vector<gpucomp_tensor> &inputs, const std::vector<gpucomp_tensor> &outputs)
    {
        detail::call(gpucomp_enqueue, get(), inputs.data(), inputs.size(), outputs.data(), outputs.size());
    }

    void wait() { detail::call(gpucomp_wait, get()); }
    void plan(const std::vector<gpucomp_tensor> &inputs) { detail::call(gpucomp_plan, get(), inputs.data(), inputs.size()); }

    // The shape of an output, as planned last.
    std::vector<std::int64_t> output_shape(std::size_t number)
    {
        std::int64_t shape[GPUCOMP_MAX_RANK];
        std::size_t rank = 0;
        detail::call(gpucomp_output_shape, get(), number, static_cast<std::int64_t *>(shape), &rank,
                     static_cast<std::uint64_t *>(nullptr));
        return std::vector<std::int64_t>(shape, shape + rank);
    }

    void reset() { detail::call(gpucomp_reset, get()); }
    void rewind(std::int64_t rows) { detail::call(gpucomp_rewind, get(), rows); }
    gpucomp_context *get() const noexcept { return handle_.get(); }

private:
    struct Destroy {
        void operator()(gpucomp_context *context) const noexcept { gpucomp_context_destroy(context); }
    };
    std::unique_ptr<gpucomp_context, Destroy> handle_;
};

} // namespace gpucomp
#endif
