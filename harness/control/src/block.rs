//! The model of `harness/worker/torchleak_worker/llama3.py`, operator by operator and drawn in the same order.

use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use torchleak_protocol::Llama3;

const NORM_EPS: f64 = 1e-5;
const ROPE_THETA: f64 = 500_000.0;
const INIT_STD: f64 = 0.02;
const EMBEDDING_STD: f64 = 1.0;

/// A stack of blocks, with an embedding and an output head where there is a vocabulary.
#[derive(Debug)]
pub struct Model {
    vocabulary: Option<Vocabulary>,
    blocks: Vec<Block>,
    layers: usize,
    rotary: Rotary,
}

#[derive(Debug)]
struct Vocabulary {
    embedding: Tensor,
    norm: Tensor,
    head: Tensor,
}

/// What a block's attention needs besides its weights.
#[derive(Debug)]
struct Rotary {
    cos: Tensor,
    sin: Tensor,
    head_dim: i64,
    /// Query heads that share a key and value head.
    group: i64,
}

#[derive(Debug)]
struct Block {
    attention_norm: Tensor,
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wo: Tensor,
    ffn_norm: Tensor,
    w1: Tensor,
    w2: Tensor,
    w3: Tensor,
}

/// Makes parameters in a store, drawn from the global generator.
struct Draw<'a> {
    store: &'a VarStore,
    kind: Kind,
}

impl Draw<'_> {
    fn normal(&self, rows: i64, columns: i64, std: f64) -> Tensor {
        let drawn = Tensor::empty([rows, columns], (self.kind, self.store.device())).normal_(0.0, std);
        self.store.root().add("weight", drawn, true)
    }

    fn projection(&self, inputs: i64, outputs: i64) -> Tensor {
        self.normal(outputs, inputs, INIT_STD)
    }

    fn norm(&self, dim: i64) -> Tensor {
        self.store.root().add("norm", Tensor::ones([dim], (self.kind, self.store.device())), true)
    }

    fn block(&self, size: &Llama3) -> Block {
        let [dim, ffn, head_dim] = [size.dim, size.ffn_dim, size.head_dim].map(i64::from);
        let (queries, keys) = (i64::from(size.heads) * head_dim, i64::from(size.kv_heads) * head_dim);
        Block {
            attention_norm: self.norm(dim),
            wq: self.projection(dim, queries),
            wk: self.projection(dim, keys),
            wv: self.projection(dim, keys),
            wo: self.projection(queries, dim),
            ffn_norm: self.norm(dim),
            w1: self.projection(dim, ffn),
            w2: self.projection(ffn, dim),
            w3: self.projection(dim, ffn),
        }
    }
}

impl Model {
    /// Draws a model for sequences of `seq` tokens; its parameters are in `store`.
    pub fn new(size: &Llama3, seq: i64, kind: Kind, store: &VarStore) -> Self {
        let draw = Draw { store, kind };
        let dim = i64::from(size.dim);
        let vocabulary = size.vocab.map(i64::from).map(|vocab| Vocabulary {
            embedding: draw.normal(vocab, dim, EMBEDDING_STD),
            norm: draw.norm(dim),
            head: draw.projection(dim, vocab),
        });
        let layers = size.layers as usize;
        let blocks = (0..if size.share_weights { 1 } else { layers }).map(|_| draw.block(size)).collect();
        let group = i64::from(size.heads / size.kv_heads);
        let rotary = Rotary::new(seq, i64::from(size.head_dim), group, kind, store.device());
        Self { vocabulary, blocks, layers, rotary }
    }

    /// Maps `[batch, seq]` tokens to logits, or `[batch, seq, dim]` to the same shape where there is no vocabulary.
    pub fn forward(&self, input: &Tensor) -> Tensor {
        let mut x = match &self.vocabulary {
            Some(vocabulary) => Tensor::embedding(&vocabulary.embedding, input, -1, false, false),
            None => input.shallow_clone(),
        };
        for block in self.blocks.iter().cycle().take(self.layers) {
            x = block.forward(&x, &self.rotary);
        }
        match &self.vocabulary {
            Some(vocabulary) => project(&normalized(&x, &vocabulary.norm), &vocabulary.head),
            None => x,
        }
    }
}

impl Block {
    fn forward(&self, x: &Tensor, rotary: &Rotary) -> Tensor {
        let h = x + self.attend(&normalized(x, &self.attention_norm), rotary);
        &h + self.feed_forward(&normalized(&h, &self.ffn_norm))
    }

    fn attend(&self, x: &Tensor, rotary: &Rotary) -> Tensor {
        let (batch, seq, _) = x.size3().expect("the input of a block has three dimensions");
        let heads = |weight| project(x, weight).view([batch, seq, -1, rotary.head_dim]).transpose(1, 2);
        let (q, k, v) = (heads(&self.wq), heads(&self.wk), heads(&self.wv));
        let (q, k) = (rotary.rotate(&q), rotary.rotate(&k));
        let (k, v) = (rotary.repeated(k), rotary.repeated(v));
        let no_mask = None::<&Tensor>;
        let out = Tensor::scaled_dot_product_attention(&q, &k, &v, no_mask, 0.0, true, None, false);
        project(&out.transpose(1, 2).reshape([batch, seq, -1]), &self.wo)
    }

    fn feed_forward(&self, x: &Tensor) -> Tensor {
        project(&(project(x, &self.w1).silu() * project(x, &self.w3)), &self.w2)
    }
}

impl Rotary {
    /// The angles are computed in float32 whatever `kind` is: bfloat16 cannot represent positions above 256.
    fn new(seq: i64, head_dim: i64, group: i64, kind: Kind, device: Device) -> Self {
        let float = (Kind::Float, device);
        let exponents = Tensor::arange_start_step(0, head_dim, 2, float) / head_dim;
        let frequencies = Tensor::pow_scalar(ROPE_THETA, &exponents).reciprocal();
        let angles = Tensor::arange(seq, float).outer(&frequencies);
        let angles = Tensor::cat(&[&angles, &angles], -1);
        Self { cos: angles.cos().to_kind(kind), sin: angles.sin().to_kind(kind), head_dim, group }
    }

    fn rotate(&self, x: &Tensor) -> Tensor {
        let halves = x.chunk(2, -1);
        x * &self.cos + Tensor::cat(&[&-&halves[1], &halves[0]], -1) * &self.sin
    }

    fn repeated(&self, x: Tensor) -> Tensor {
        if self.group > 1 { x.repeat_interleave_self_int(self.group, 1, None) } else { x }
    }
}

fn normalized(x: &Tensor, weight: &Tensor) -> Tensor {
    x.rms_norm(weight.size(), Some(weight), NORM_EPS)
}

fn project(x: &Tensor, weight: &Tensor) -> Tensor {
    x.linear(weight, None::<&Tensor>)
}
