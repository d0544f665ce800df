// C functions over oneCCL's C++ interface, for ctypes: connect two processes, send, receive, wait.
//
// oneCCL is set up without a worker thread, so all that moves data is done inside `test`, by whoever calls it, for
// every communicator of the process. It takes no locks of its own for that. Hence one mutex around each call, and
// waits that let the others in between. While cores are free they yield after each test. Where a yield turns out to
// give milliseconds away, because others want the core, they test in short bursts with pauses in between: a pause
// is short, since whoever slept comes before those that never do.
#include <oneapi/ccl.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// Both are called while a communicator is made. `Get` copies the value of `key` to `room`, or nothing while there is
// none, and returns its size; a negative size gives up.
using Get = int (*)(const char *key, char *value, int room);
using Set = void (*)(const char *key, const char *value, int size);

constexpr int value_bytes = 4096;
constexpr auto yielding = microseconds(1000), burst_length = microseconds(30);
constexpr auto long_yield = microseconds(200), crowded_for = microseconds(200'000);
constexpr auto shortest_pause = microseconds(20), longest_pause = microseconds(500);

class Store final : public ccl::kvs_interface {
public:
    Store(Get get, Set set) : get_(get), set_(set) {}

    ccl::vector_class<char> get(const ccl::string_class &key) override {
        ccl::vector_class<char> value(value_bytes);
        const int size = get_(key.c_str(), value.data(), value_bytes);
        if (size < 0) {
            throw std::runtime_error("the other side did not come in time");
        }
        value.resize(size);
        return value;
    }

    void set(const ccl::string_class &key, const ccl::vector_class<char> &value) override {
        set_(key.c_str(), value.data(), static_cast<int>(value.size()));
    }

    int get_id() override { return 1; }

private:
    Get get_;
    Set set_;
};

std::mutex one_at_a_time;
thread_local std::string last_fault;
thread_local Clock::time_point crowded_until;

void breathe() {
    for (int i = 0; i < 20; ++i) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

// Holds the mutex. Looks for it for a while before it lets the system put it to sleep: who holds it is soon done.
class Turn {
public:
    Turn() {
        for (int looks = 0; looks < 100; ++looks) {
            if (one_at_a_time.try_lock()) {
                return;
            }
            breathe();
        }
        one_at_a_time.lock();
    }
    ~Turn() { one_at_a_time.unlock(); }
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;
};

template <class Result, class Call> Result guarded(Result otherwise, Call call) {
    try {
        return call();
    } catch (const std::exception &fault) {
        last_fault = fault.what();
    }
    return otherwise;
}

} // namespace

extern "C" {

// What went wrong in this thread's last call that failed.
const char *tp_fault() { return last_fault.c_str(); }

// A communicator of two, or null.
void *tp_connect(int rank, Get get, Set set) {
    return guarded<void *>(nullptr, [&] {
        const Turn turn;
        // It says on stdout that it was told to be quiet.
        std::cout.setstate(std::ios_base::failbit);
        ccl::init();
        std::cout.clear();
        return new ccl::communicator(ccl::create_communicator(2, rank, std::make_shared<Store>(get, set)));
    });
}

void tp_disconnect(void *communicator) {
    guarded(0, [&] {
        const Turn turn;
        delete static_cast<ccl::communicator *>(communicator);
        return 0;
    });
}

// Begin to send or receive; what is under way, or null.
void *tp_send(void *communicator, void *data, size_t size, int rank) {
    return guarded<void *>(nullptr, [&] {
        const Turn turn;
        auto &peers = *static_cast<ccl::communicator *>(communicator);
        return new ccl::event(ccl::send(data, size, ccl::datatype::uint8, rank, peers));
    });
}

void *tp_receive(void *communicator, void *data, size_t size, int rank) {
    return guarded<void *>(nullptr, [&] {
        const Turn turn;
        auto &peers = *static_cast<ccl::communicator *>(communicator);
        return new ccl::event(ccl::recv(data, size, ccl::datatype::uint8, rank, peers));
    });
}

// Wait up to `limit_us`: 1 and the event is gone when it is done, 0 when it isn't, -1 when it failed.
int tp_wait(void *event, long limit_us) {
    return guarded(-1, [&] {
        const auto begun = Clock::now();
        auto pause = shortest_pause;
        auto burst = begun;
        for (;;) {
            {
                const Turn turn;
                auto *under_way = static_cast<ccl::event *>(event);
                if (under_way->test()) {
                    delete under_way;
                    return 1;
                }
            }
            const auto now = Clock::now();
            if (now - begun >= microseconds(limit_us)) {
                return 0;
            }
            if (now - begun < yielding && now > crowded_until) {
                std::this_thread::yield();
                const auto after = Clock::now();
                if (after - now > long_yield) {
                    crowded_until = after + crowded_for;
                    burst = after;
                }
                continue;
            }
            if (now - burst < burst_length) {
                breathe();
                continue;
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(2 * pause, longest_pause);
            burst = Clock::now();
        }
    });
}

} // extern "C"
