#include "lethe/kernels/cpu/indexer_kl.h"

#include "lethe/kernels/cpu/isa/indexer_steps.h"
#include "lethe/kernels/cpu/isa/softmax_heads.h"

namespace lethe::kernels::LETHE_ISA {
namespace {

constexpr float kLeastMass = 1e-30F;  // below, shares may have lost digits to underflow

/// What a query keeps from its statistics to its gradients.
struct QueryState {
  float* loss;
  float* score_top;  // sum e^I = score_mass * e^score_top
  float* score_mass;
  float* given_mass;  // > 0: the teacher is a.mass / given_mass
  HeadMass slots;     // mass becomes the weight of the head's e^(z - top) in P
  HeadMass others;    // window and sink
};

struct ThreadScratch {
  float* panels;  // a query's attention heads
  HeadProducts z;
  float* scores;
  float* teacher;
  int32_t* ids;
};

class Kl {
 public:
  explicit Kl(const IndexerKl& a) : a_(a), step_(a.g), stride_(head_stride(a.heads)) {
    const int64_t queries = step_.queries;
    states_ = a.g.scratch + indexer_grad_scratch_floats(a.g);
    threads_ = states_ + queries * state_floats();
  }

  void prepare(int64_t query, int64_t in_step, int thread) {
    const QueryState state = state_of(in_step);
    *state.loss = 0;
    const int64_t tiles = tiles_of_query(a_.g, run_of(a_.g.rows, query));
    if (tiles <= 1) return;  // one tile: measured where its gradient is computed
    for (int64_t tile = 0; tile < tiles; ++tile)
      measure(open_tile(a_.g, step_, query, in_step, tile, thread), state);
    weigh_heads(query, state);
  }

  void d_scores(const QueryTile& t, float* out) {
    const QueryState state = state_of(t.in_step);
    const ThreadScratch own = thread_of(t.thread);
    if (t.tiles == 1) {
      measure(t, state);
      if (*state.given_mass <= 0) weigh_heads(t.query, state);
    } else {
      tile_scores(a_.g, t, own.scores);
      slot_products(t, own);
      exponentials(own.z, t.keys.count, a_.scale, state.slots.top);
    }
    if (*state.given_mass <= 0)
      sums_over_heads(own.z, t.keys.count, state.slots.mass, own.teacher, [](Vec e) { return e; });
    // All keys at hand: divided by their own sum, so that the only slot of a query gets exactly 1.
    float total = t.tiles == 1 ? sum_of(own.teacher, t.keys.count) : 1.0F;
    if (total == 0) total = 1.0F;
    *state.loss += difference(own, t.keys.count, total, state, out);
  }

  void finish(int64_t, int64_t count) {
    for (int64_t i = 0; i < count; ++i) *a_.loss += static_cast<double>(*state_of(i).loss);
  }

 private:
  [[nodiscard]] int64_t state_floats() const { return 16 + 4 * stride_; }

  [[nodiscard]] QueryState state_of(int64_t in_step) const {
    float *p = states_ + in_step * state_floats(), *heads = p + 16;
    return {p,
            p + 1,
            p + 2,
            p + 3,
            {heads, heads + stride_},
            {heads + 2 * stride_, heads + 3 * stride_}};
  }

  [[nodiscard]] ThreadScratch thread_of(int thread) const {
    const int64_t panels = head_panel_floats(a_.heads, a_.dim), keys = step_.keys;
    const int64_t products = (keys > kDenseKeys ? keys : kDenseKeys) * stride_;
    float* p = threads_ + thread * (panels + products + stride_ + 2 * keys + kDenseKeys);
    float *z = p + panels, *scores = z + products + stride_;
    return {p,
            {z, stride_, a_.heads},
            scores,
            scores + keys,
            reinterpret_cast<int32_t*>(scores + 2 * keys)};
  }

  /// Adds the tile's scores and shares to the sums over the query's keys, from the first tile on.
  void measure(const QueryTile& t, const QueryState& state) {
    const ThreadScratch own = thread_of(t.thread);
    tile_scores(a_.g, t, own.scores);
    if (t.tile == 0) {
      *state.score_top = -__builtin_inff();
      *state.score_mass = 0;
      *state.given_mass = a_.mass == nullptr ? 0.0F : gather_mass(t, own.teacher);
      if (*state.given_mass <= 0) start_heads(t, own, state);
    }
    add_scores(own.scores, t.keys.count, state);
    if (*state.given_mass > 0) return;
    slot_products(t, own);
    add_mass(own.z, t.keys.count, a_.scale, state.slots);
  }

  /// The sum of the given masses, which go to `out`; 0 if it is too small to divide by.
  float gather_mass(const QueryTile& t, float* out) const {
    const float* row = a_.mass + t.query * a_.g.width;
    for (int64_t i = 0; i < t.keys.count; ++i) out[i] = row[t.columns[i]];
    const float total = sum_of(out, t.keys.count);
    return total >= kLeastMass ? total : 0.0F;
  }

  static float sum_of(const float* p, int64_t count) {
    Vec part{};
    for_vectors(count, [&](int64_t i, int64_t some) { part += get(p + i, some); });
    return sum(part);
  }

  static void add_scores(const float* scores, int64_t count, const QueryState& state) {
    Vec top = broadcast(*state.score_top);
    for_vectors(count, [&](int64_t i, int64_t some) {
      const Vec score = get(scores + i, some);
      top = max(select(lane_numbers() < static_cast<int32_t>(some), score, top), top);
    });
    const float before = *state.score_top, now = largest(top);
    const Vec shift = finite_shift(broadcast(now));
    Vec mass{};
    for_vectors(count, [&](int64_t i, int64_t some) {
      const Vec e = exp_below_88(get(scores + i, some) - shift);
      mass += select(lane_numbers() < static_cast<int32_t>(some), e, Vec{});
    });
    const Vec kept = broadcast(*state.score_mass) * exp_below_88(broadcast(before) - shift);
    *state.score_mass = kept[0] + sum(mass);
    *state.score_top = now;
  }

  /// z = <q_h, slot>, not yet scaled.
  void slot_products(const QueryTile& t, const ThreadScratch& own) const {
    pack_heads(a_.q + t.query * a_.heads * a_.dim, a_.heads, a_.dim, own.panels);
    head_products({a_.slots, a_.dim, t.keys.ids, t.keys.count}, own.panels, own.z);
  }

  /// Empty sums; those of window and sink are complete where the teacher asks for them.
  void start_heads(const QueryTile& t, const ThreadScratch& own, const QueryState& state) const {
    reset_mass(state.slots, a_.heads);
    if (!a_.joint || a_.lse != nullptr) return;
    for_vectors(a_.heads, [&](int64_t head, int64_t some) {
      const Vec sink = get(a_.sink + head, some);
      store(state.others.top + head, sink);
      store(state.others.mass + head, select(sink > -__builtin_inff(), broadcast(1.0F), Vec{}));
    });
    pack_heads(a_.q + t.query * a_.heads * a_.dim, a_.heads, a_.dim, own.panels);
    const int64_t begin = t.query - least(t.run.position, a_.window - 1);
    for (int64_t token = begin; token <= t.query; token += kDenseKeys) {
      const int64_t count = least(kDenseKeys, t.query + 1 - token);
      for (int64_t i = 0; i < count; ++i) own.ids[i] = static_cast<int32_t>(token + i);
      head_products({a_.kv, a_.dim, own.ids, count}, own.panels, own.z);
      add_mass(own.z, count, a_.scale, state.others);
    }
  }

  /// ln of what one unit of e^(z - top) is worth among all heads.
  [[nodiscard]] Vec log_worth(int64_t query, int64_t head, const QueryState& state) const {
    const Vec top = load(state.slots.top + head), mass = load(state.slots.mass + head);
    if (!a_.joint) return -log(mass);
    if (a_.lse != nullptr) {
      const float* lse = a_.lse + query * a_.heads + head;
      return top - get(lse, least(kLanes, a_.heads - head));
    }
    const Vec other_top = load(state.others.top + head), other = load(state.others.mass + head);
    const Vec highest = finite_shift(max(top, other_top));
    const Vec all = mass * exp_below_88(top - highest) + other * exp_below_88(other_top - highest);
    return (top - highest) - log(all);
  }

  /// P does not depend on a factor common to all heads: the head that is worth most gets 1, which
  /// keeps tiny shares from underflow. Then all are divided by the sum over the slots.
  void weigh_heads(int64_t query, const QueryState& state) const {
    Vec most = broadcast(-__builtin_inff());
    for_vectors(a_.heads, [&](int64_t head, int64_t some) {
      const Vec worth = select(lane_numbers() < static_cast<int32_t>(some),
                               log_worth(query, head, state),
                               broadcast(-__builtin_inff()));
      store(state.others.top + head, worth);
      most = max(worth, most);
    });
    const Vec shift = finite_shift(broadcast(largest(most)));
    Vec total{};
    for (int64_t head = 0; head < a_.heads; head += kLanes) {
      const Vec unit = exp_below_88(load(state.others.top + head) - shift);
      total += unit * load(state.slots.mass + head);
      store(state.slots.mass + head, unit);
    }
    const float all = sum(total);
    const Vec factor = broadcast(all > 0 ? 1.0F / all : 0.0F);
    for (int64_t head = 0; head < a_.heads; head += kLanes)
      store(state.slots.mass + head, load(state.slots.mass + head) * factor);
  }

  /// out = Q - P; returns sum P (ln P - ln Q). P = teacher / total.
  static float difference(
      const ThreadScratch& own, int64_t count, float total, const QueryState& state, float* out) {
    const Vec shift = finite_shift(broadcast(*state.score_top));
    const Vec mass = broadcast(*state.score_mass), log_mass = log(mass), share = 1.0F / mass;
    Vec loss{};
    for_vectors(count, [&](int64_t i, int64_t some) {
      const Vec above = get(own.scores + i, some) - shift;
      const Vec p = get(own.teacher + i, some) / total;
      const Vec term = p * (log(p) - (above - log_mass));
      loss += select(p >= 1.17549435e-38F, term, Vec{});
      put(out + i, exp_below_88(above) * share - p, some);
    });
    return sum(loss);
  }

  const IndexerKl& a_;
  StepScratch step_;
  int64_t stride_;
  float *states_, *threads_;
};

}  // namespace

void indexer_kl(const IndexerKl& a) {
  *a.loss = 0;
  Kl kl(a);
  for_steps(a.g, kl);
}

}  // namespace lethe::kernels::LETHE_ISA
