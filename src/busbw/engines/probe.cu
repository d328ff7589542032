// The verification data of host_probe.py on a GPU: fill a buffer with it, or count the elements that differ from it.
//
// One element type and operator is one instance of Elements; its arguments come from the rows of core/dtypes.py and core/redops.py, so
// there is no second table here. Integer arithmetic alone decides every bit, except the mean of doubles, one correctly rounded division.
// Compiles as CUDA C++ (NVRTC, with BUSBW_ELEMENTS naming the instance) and as plain C++17, where a "thread" is a loop of its own.

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define BUSBW_GPU 1
#define BUSBW_FN __device__ __forceinline__
#else
#define BUSBW_FN inline
#endif
#ifdef BUSBW_GPU
#define BUSBW_ROLLED _Pragma("unroll 1")  // one copy of a loop's body: unrolled, the compiler takes seven times as long
#else
#define BUSBW_ROLLED
#endif

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

enum Op { op_none, op_sum, op_prod, op_min, op_max, op_avg, op_mulsum };
enum Kind : u32 { kind_sent, kind_reduced, kind_untouched };

constexpr u64 lane_totals = 0, lane_seat = 1, lane_first_seat = 8;
constexpr u64 prod_seats_int = 8, prod_seats_float = 5;
constexpr int largest_total_bits = 31;
constexpr u64 sentinel = 0xA5A5A5A5A5A5A5A5ull;

// One region of a buffer and the probe it belongs to. `first` is the index of its first element in the send buffer of `rank`.
struct Region {
    u64 address, first, length, seed, ranks, rank, average_limit, tolerance;
};

// What a check found: `farthest` is the largest of ~offset, so that all-zero memory means that nothing was found.
struct Found {
    u64 wrong, farthest;
};

BUSBW_FN u64 high_product(u64 a, u64 b) {
#ifdef BUSBW_GPU
    return __umul64hi(a, b);
#else
    return static_cast<u64>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

BUSBW_FN int bit_length(u64 v) {
#ifdef BUSBW_GPU
    return 64 - __clzll(static_cast<i64>(v));
#else
    return v ? 64 - __builtin_clzll(v) : 0;
#endif
}

BUSBW_FN u64 hash_base(u64 seed, u64 index) { return seed * 0xA24BAED4963EE407ull + (index + 1) * 0x9E3779B97F4A7C15ull; }

BUSBW_FN u64 hash64(u64 base, u64 lane) {
    u64 z = base + lane * 0xD1B54A32D192ED03ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// A number in [0, limit) from 32 random bits.
BUSBW_FN u64 below(u64 bits32, u64 limit) { return bits32 * limit >> 32; }

BUSBW_FN u64 low32(u64 v) { return v & 0xFFFFFFFFull; }

// Division by a number known only at run time, through its reciprocal: the quotient's estimate is short by one at most.
struct Divisor {
    u64 by, reciprocal;

    BUSBW_FN explicit Divisor(u64 divisor) : by(divisor ? divisor : 1), reciprocal(~0ull / by) {}
    BUSBW_FN u64 quotient(u64 v) const {
        u64 q = high_product(v, reciprocal);
        return v - q * by >= by ? q + 1 : q;
    }
    // Seat's part of total: see _share() in host_probe.py.
    BUSBW_FN u64 share(u64 total, u64 seat) const {
        return by == 1 ? total : quotient(total * (seat + 1)) - quotient(total * seat);
    }
};

template <int BITS> struct Word;
template <> struct Word<8> { typedef unsigned char type; };
template <> struct Word<16> { typedef unsigned short type; };
template <> struct Word<32> { typedef u32 type; };
template <> struct Word<64> { typedef u64 type; };

template <int BITS_, int SIGNED, int SIGNIFICAND, int EXPONENT_BITS, int LOW, int HIGH, int OP> struct Elements {
    static constexpr int BITS = BITS_;
    static constexpr u64 MASK = ~0ull >> (64 - BITS);
    static constexpr u64 SIGN = 1ull << (BITS - 1);
    static constexpr bool FLOAT = SIGNIFICAND > 0;
    static constexpr u64 LIMIT = (1ull << (SIGNIFICAND < largest_total_bits ? SIGNIFICAND : largest_total_bits)) - 1;
    static constexpr u64 TOTALS_LIMIT = OP == op_mulsum ? LIMIT / 2 : LIMIT;
    static constexpr int BIAS = (1 << (EXPONENT_BITS > 0 ? EXPONENT_BITS - 1 : 0)) - 1;

    u64 ranks, rank, seed, average_limit;
    bool tolerant;
    int low;
    Divisor all, even, odd, group;

    BUSBW_FN explicit Elements(const Region& r)
        : ranks(r.ranks), rank(r.rank), seed(r.seed), average_limit(r.average_limit), tolerant(r.tolerance != 0), low(lowest(r)),
          all(r.ranks), even((r.ranks + 1) / 2), odd(r.ranks / 2), group((r.ranks + 1 - r.rank % 2) / 2) {}

    BUSBW_FN static int lowest(const Region& r) {
        const int raised = r.tolerance ? LOW + bit_length(r.ranks) : LOW;
        return raised < HIGH ? raised : HIGH;
    }

    // Bits of element `index` of the rank's send buffer; above the type's width they mean nothing.
    BUSBW_FN u64 sent(u64 index) const {
        const u64 h = hash_base(seed, index);
        if constexpr (OP == op_none) return plain(h);
        else if constexpr (FLOAT) return float_input(h);
        else return int_input(h);
    }

    // Bits that reducing element `index` over all ranks must give; where nothing is reduced, the rank's own.
    BUSBW_FN u64 reduced(u64 index) const {
        const u64 h = hash_base(seed, index);
        if constexpr (OP == op_none) return plain(h);
        else if constexpr (FLOAT) return float_result(h);
        else return int_result(h);
    }

    BUSBW_FN u64 plain(u64 h) const {
        const u64 v = hash64(h, lane_first_seat + rank) & MASK;
        if constexpr (!FLOAT) return v;
        constexpr int top = BITS - 2;
        return v >> top & 1 ? v & ~(1ull << (top - 1)) : v | 1ull << (top - 1);
    }

    BUSBW_FN static u64 step(u64 h, u64 seat) { return hash64(h, lane_first_seat + seat); }

    // The seat of number `number` of `seats`, which is below `seats`.
    BUSBW_FN static u64 seat_of(u64 h, u64 number, u64 seats) {
        const u64 seat = number + below(low32(hash64(h, lane_seat)), seats);
        return seat >= seats ? seat - seats : seat;
    }

    BUSBW_FN int exponent(u64 h) const {
        return low + static_cast<int>(below(hash64(h, lane_seat) >> 32, static_cast<u64>(HIGH - low + 1)));
    }

    BUSBW_FN void totals(u64 h, u64& plus, u64& minus) const {
        const u64 v = hash64(h, lane_totals), limit = OP == op_avg ? (average_limit ? average_limit : 1) : TOTALS_LIMIT;
        plus = 1 + below(low32(v), limit);
        minus = 0;
        if (ranks == 1 || limit <= 1) return;
        minus = 1 + below(v >> 32, limit);
        if constexpr (OP == op_mulsum) plus = 2 * plus - 1;
        else if (minus == plus) minus = plus == limit ? 1 : plus + 1;
    }

    // Bits of units * 2^exponent, which must be exact; zero is +0.
    BUSBW_FN static u64 encode(i64 units, int exponent) {
        if (units == 0) return 0;
        const u64 magnitude = units < 0 ? 0 - static_cast<u64>(units) : static_cast<u64>(units);
        const int top = exponent + bit_length(magnitude) - 1;
        const int shift = exponent - (top > 1 - BIAS ? top : 1 - BIAS) + (SIGNIFICAND - 1);
        const u64 field = shift >= 0 ? magnitude << shift : magnitude >> -shift;
        const u64 raised = static_cast<u64>(top + BIAS > 1 ? top + BIAS - 1 : 0) << (SIGNIFICAND - 1);
        return field + raised | (units < 0 ? SIGN : 0);
    }

    BUSBW_FN u64 float_input(u64 h) const {
        if constexpr (OP == op_prod) {
            return prod_input(h, seat_of(h, rank, ranks));
        } else if constexpr (OP == op_min || OP == op_max) {
            return encode(extreme_units(h, seat_of(h, rank, ranks)), exponent(h));
        } else {
            if (OP == op_avg && tolerant) return encode(seat_of(h, rank, ranks) ? 0 : mean_units(h), exponent(h));
            u64 plus, minus;
            totals(h, plus, minus);
            if constexpr (OP == op_mulsum) {
                const i64 units = static_cast<i64>(group.share(rank % 2 ? minus : plus, seat_of(h, rank / 2, group.by)));
                return encode(rank % 2 ? -units : units, exponent(h));
            }
            const u64 seat = seat_of(h, rank, ranks);
            i64 units = static_cast<i64>(seat % 2 ? odd.share(minus, seat / 2) : even.share(plus, seat / 2));
            if (OP == op_avg) units *= static_cast<i64>(ranks);
            return encode(seat % 2 ? -units : units, exponent(h));
        }
    }

    BUSBW_FN u64 float_result(u64 h) const {
        if constexpr (OP == op_prod) {
            const u64 doubling = (ranks < prod_seats_float ? ranks : prod_seats_float) - 1;
            const i64 units = significand(h);
            const bool negative = (step(h, 0) ^ step(h, ranks)) & 1;
            return encode(negative ? -units : units, 1 - SIGNIFICAND + static_cast<int>(doubling % 2));
        } else if constexpr (OP == op_min || OP == op_max) {
            return encode(extreme_units(h, 0), exponent(h));
        } else {
            if (OP == op_avg && tolerant) return mean_result(mean_units(h), exponent(h));
            u64 plus, minus;
            totals(h, plus, minus);
            return encode(static_cast<i64>(plus - (OP == op_mulsum ? 2 * minus : minus)), exponent(h));
        }
    }

    BUSBW_FN static i64 mean_units(u64 h) { return static_cast<i64>(1 + below(low32(hash64(h, lane_totals)), LIMIT)); }

    // Bits of the number nearest to units / ranks * 2^exponent, ties to even.
    BUSBW_FN u64 mean_result(i64 units, int exponent) const {
        if constexpr (BITS == 64) {
            union { double value; u64 bits; } mean;
            mean.value = static_cast<double>(units) / static_cast<double>(ranks);
            return mean.bits + (static_cast<u64>(static_cast<i64>(exponent)) << (SIGNIFICAND - 1));
        } else {
            const u64 n = static_cast<u64>(units);
            const int shift = SIGNIFICAND + bit_length(ranks) - bit_length(n) + 1;  // at least one bit more than the type keeps
            const u64 quotient = all.quotient(n << shift), rest = (n << shift) - quotient * ranks;
            const int last = exponent - shift, top = last + bit_length(quotient) - 1;
            const int drop = (top > 1 - BIAS ? top : 1 - BIAS) - (SIGNIFICAND - 1) - last;
            if (drop > 62) return 0;
            const u64 kept = quotient >> drop, below = quotient & ((1ull << drop) - 1), half = 1ull << (drop - 1);
            const bool up = below > half || (below == half && (rest != 0 || kept % 2 == 1));
            return encode(static_cast<i64>(kept + (up ? 1 : 0)), last + drop);
        }
    }

    BUSBW_FN static i64 significand(u64 h) {
        constexpr u64 hidden = 1ull << (SIGNIFICAND - 1);
        return static_cast<i64>(hidden | (hash64(h, lane_totals) & (hidden - 1)));
    }

    BUSBW_FN static u64 prod_input(u64 h, u64 seat) {
        const bool negative = (step(h, seat) ^ step(h, seat + 1)) & 1;
        const i64 units = seat ? 1 : significand(h);
        int e = seat ? 0 : 1 - SIGNIFICAND;
        if (seat > 0 && seat < prod_seats_float) e = seat % 2 ? 1 : -1;
        return encode(negative ? -units : units, e);
    }

    BUSBW_FN static i64 extreme_units(u64 h, u64 seat) {
        constexpr i64 limit = static_cast<i64>(LIMIT);
        i64 units = 1 - limit + static_cast<i64>(below(low32(hash64(h, lane_totals)), 2 * LIMIT));
        if (seat) units = units - 1 - static_cast<i64>(below(low32(step(h, seat)), static_cast<u64>(units + limit)));
        return OP == op_max ? units : -units;
    }

    BUSBW_FN u64 int_input(u64 h) const {
        if constexpr (OP == op_mulsum) {
            const u64 at = rank % 2 * (ranks + 2) + seat_of(h, rank / 2, group.by);
            return step(h, at + 1) - step(h, at);
        }
        const u64 seat = seat_of(h, rank, ranks);
        if constexpr (OP == op_sum) return step(h, seat + 1) - step(h, seat);
        else if constexpr (OP == op_avg) return ranks * all.share(int_average(h), seat);
        else if constexpr (OP == op_prod) return seat < prod_seats_int ? step(h, seat) | 1 : 1;
        else return extreme_int(h, seat);
    }

    BUSBW_FN u64 int_result(u64 h) const {
        if constexpr (OP == op_sum) {
            return step(h, ranks) - step(h, 0);
        } else if constexpr (OP == op_mulsum) {
            const u64 base = ranks + 2;
            return step(h, (ranks + 1) / 2) - step(h, 0) + 2 * (step(h, base + ranks / 2) - step(h, base));
        } else if constexpr (OP == op_avg) {
            return int_average(h);
        } else if constexpr (OP == op_prod) {
            u64 product = 1;
            for (u64 seat = 0; seat < ranks && seat < prod_seats_int; seat++) product *= step(h, seat) | 1;
            return product;
        } else {
            return extreme_int(h, 0);
        }
    }

    BUSBW_FN u64 int_average(u64 h) const { return below(low32(hash64(h, lane_totals)), average_limit + 1); }

    BUSBW_FN static u64 extreme_int(u64 h, u64 seat) {
        constexpr u64 width_mask = MASK & 0xFFFFFFFFull;
        const u64 top = 1 + below(low32(hash64(h, lane_totals)), width_mask), drawn = step(h, seat);
        u64 v = seat ? below(low32(drawn), top) : top;
        if (BITS == 64) v = v << 32 | drawn >> 32;
        if (OP == op_min) v ^= MASK;
        return SIGNED ? v ^ SIGN : v;
    }
};

// Sixteen bytes at an address divisible by 16: what one thread writes or reads at once.
struct alignas(16) Vector {
    u64 low, high;
};

// How the elements of a region lie in 16-byte vectors: `skip` elements of the first vector come before the region.
template <class E> struct Span {
    typedef typename Word<E::BITS>::type word;
    static constexpr u64 lanes = 128 / E::BITS;
    u64 base, skip, length, vectors;

    BUSBW_FN explicit Span(const Region& r)
        : base(r.address & ~15ull), skip((r.address & 15) / (E::BITS / 8)), length(r.length),
          vectors((skip + length + lanes - 1) / lanes) {}
    BUSBW_FN bool whole(u64 v) const { return v * lanes >= skip && (v + 1) * lanes <= skip + length; }
    BUSBW_FN bool inside(u64 lane) const { return lane >= skip && lane < skip + length; }
    BUSBW_FN Vector* vector(u64 v) const { return reinterpret_cast<Vector*>(base) + v; }
    BUSBW_FN word* element(u64 lane) const { return reinterpret_cast<word*>(base) + lane; }
};

// The vector of the elements from `index` on. The one place that asks for elements: the compiler's time goes there.
template <class E> BUSBW_FN Vector expected_vector(const E& elements, u64 index, u32 kind) {
    u64 low = 0, high = 0;
    BUSBW_ROLLED
    for (u64 lane = 0; lane < Span<E>::lanes; lane++) {
        const u64 bits = kind == kind_sent ? elements.sent(index + lane) : kind == kind_reduced ? elements.reduced(index + lane) : sentinel;
        if constexpr (E::BITS == 64) {
            low = high;
            high = bits;
        } else {
            low = low >> E::BITS | high << (64 - E::BITS);
            high = high >> E::BITS | bits << (64 - E::BITS);
        }
    }
    return {low, high};
}

// Writes those elements of the region that fall to this thread of `threads`, or counts those that differ by more than its tolerance.
template <class E> BUSBW_FN Found visit(const Region& r, u32 kind, bool write, u64 thread, u64 threads) {
    typedef typename Span<E>::word word;
    const E elements(r);
    const Span<E> span(r);
    const u64 tolerance = kind == kind_reduced ? r.tolerance : 0;
    Found found = {0, 0};
    for (u64 v = thread; v < span.vectors; v += threads) {
        const bool whole = span.whole(v);
        Vector want = expected_vector(elements, r.first + v * span.lanes - span.skip, kind);
        if (whole && write) {
            *span.vector(v) = want;
            continue;
        }
        if (whole) {
            const Vector got = *span.vector(v);
            if (want.low == got.low && want.high == got.high) continue;
        }
        BUSBW_ROLLED
        for (u64 lane = v * span.lanes; lane < (v + 1) * span.lanes; lane++) {
            const word bits = static_cast<word>(want.low);
            if constexpr (E::BITS == 64) {
                want.low = want.high;
            } else {
                want.low = want.low >> E::BITS | want.high << (64 - E::BITS);
                want.high >>= E::BITS;
            }
            if (!span.inside(lane)) continue;
            word* const at = span.element(lane);
            if (write) {
                *at = bits;
                continue;
            }
            const word got = *at;
            if (static_cast<u64>(bits > got ? bits - got : got - bits) <= tolerance) continue;
            found.wrong++;
            const u64 near_end = ~(lane - span.skip);
            if (near_end > found.farthest) found.farthest = near_end;
        }
    }
    return found;
}

#ifdef BUSBW_ELEMENTS
extern "C" __global__ void probe(Region r, u32 kind, u32 write, Found* out) {
    const u64 thread = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x;
    const Found mine = visit<BUSBW_ELEMENTS>(r, kind, write != 0, thread, gridDim.x * static_cast<u64>(blockDim.x));
    if (write || !__syncthreads_or(mine.wrong != 0)) return;
    __shared__ Found block;
    if (threadIdx.x == 0) block = {0, 0};
    __syncthreads();
    if (mine.wrong) {
        atomicAdd(&block.wrong, mine.wrong);
        atomicMax(&block.farthest, mine.farthest);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&out->wrong, block.wrong);
        atomicMax(&out->farthest, block.farthest);
    }
}
#endif
