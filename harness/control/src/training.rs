//! What `harness/worker/torchleak_worker/trainer.py` does at each step, on the same data.

use tch::nn::{AdamW, Optimizer, OptimizerConfig, Sgd, VarStore};
use tch::{Device, Kind, Reduction, Tensor};
use torchleak_protocol::{self as protocol, Dtype, Input};

use crate::block::Model;

const SGD_RATE: f64 = 1e-3;
const ADAMW_RATE: f64 = 3e-4;
/// What `torch.nn.functional.cross_entropy` ignores where it is told of nothing else.
const NO_TARGET: i64 = -100;

/// A model with its data and its optimizer.
#[derive(Debug)]
pub struct Training {
    model: Model,
    store: VarStore,
    optimizer: Optimizer,
    input: Input,
    dim: i64,
    vocab: Option<i64>,
    kind: Kind,
    seed: u64,
}

impl Training {
    /// Draws the model. The global generator then has the state that it has in a Python arm.
    pub fn new(block: &protocol::Block, seed: u64, device: Device) -> Self {
        tch::manual_seed(seed.cast_signed());
        let kind = match block.dtype {
            Dtype::Float64 => Kind::Double,
            Dtype::Float32 => Kind::Float,
            Dtype::Bfloat16 => Kind::BFloat16,
        };
        let store = VarStore::new(device);
        let model = Model::new(&block.model, i64::from(block.input.seq), kind, &store);
        let optimizer = match block.optimizer {
            protocol::Optimizer::Sgd => Sgd::default().build(&store, SGD_RATE),
            protocol::Optimizer::Adamw => AdamW::default().build(&store, ADAMW_RATE),
        };
        Self {
            model,
            store,
            optimizer: optimizer.expect("an optimizer takes any parameters"),
            input: block.input,
            dim: i64::from(block.model.dim),
            vocab: block.model.vocab.map(i64::from),
            kind,
            seed,
        }
    }

    /// Trains on the batch of a step. Gives the loss and the L2 norm over all gradients.
    pub fn step(&mut self, step: u32) -> (f64, f64) {
        let loss = self.loss(step);
        loss.backward();
        let norm = self.gradient_norm().double_value(&[]);
        self.optimizer.step();
        self.optimizer.zero_grad();
        (loss.double_value(&[]), norm)
    }

    /// Tokens of one batch.
    pub fn tokens(&self) -> u64 {
        u64::from(self.input.batch) * u64::from(self.input.seq)
    }

    fn loss(&self, step: u32) -> Tensor {
        // A generator of its own, as the Python arms have it, draws the same after the same seed as the global one, and
        // tch only draws from that. Nothing else draws between two steps.
        tch::manual_seed(batch_seed(self.seed, step));
        let device = self.store.device();
        let (batch, seq) = (i64::from(self.input.batch), i64::from(self.input.seq));
        let Some(vocab) = self.vocab else {
            let x = Tensor::randn([batch, seq, self.dim], (self.kind, device));
            return self.model.forward(&x).to_kind(Kind::Float).square().mean(None);
        };
        let tokens = Tensor::randint(vocab, [batch, seq + 1], (Kind::Int64, device));
        let logits = self.model.forward(&tokens.narrow(1, 0, seq)).flatten(0, 1).to_kind(Kind::Float);
        let targets = tokens.narrow(1, 1, seq).flatten(0, -1);
        logits.cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Mean, NO_TARGET, 0.0)
    }

    fn gradient_norm(&self) -> Tensor {
        // In float32 or wider.
        let wide = if self.kind == Kind::Double { Kind::Double } else { Kind::Float };
        let norm = |tensor: &Tensor| tensor.norm_scalaropt_dtype(2, wide);
        let norms: Vec<Tensor> =
            self.store.trainable_variables().iter().map(|parameter| norm(&parameter.grad())).collect();
        norm(&Tensor::stack(&norms, 0))
    }
}

/// The seed of a step's data: `(seed * 1_000_003 + step) % 2**63`.
fn batch_seed(seed: u64, step: u32) -> i64 {
    let wide = (u128::from(seed) * 1_000_003 + u128::from(step)) % (1 << 63);
    i64::try_from(wide).expect("a remainder of 2**63 has 63 bits")
}

#[cfg(test)]
mod tests {
    use super::batch_seed;

    #[test]
    fn the_seed_of_a_batch_is_that_of_python_also_where_64_bits_overflow() {
        assert_eq!(batch_seed(0, 1), 1);
        // python3 -c 'print(((2**64 - 1) * 1_000_003 + 7) % 2**63)'
        assert_eq!(batch_seed(u64::MAX, 7), 9_223_372_036_853_775_812);
    }
}
