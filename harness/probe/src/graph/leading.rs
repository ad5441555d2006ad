//! Which objects lead to a tensor.
//!
//! Most garbage leads to none and is looked at no further, so this is asked before anything else, along
//! the references in their opposite direction.

use super::bits::Bits;
use super::traverse::Graph;

/// The tensors, and all objects from which one is reached.
pub fn leading(graph: &Graph) -> Bits {
    let referrers = Referrers::of(graph);
    let mut leading = Bits::new(graph.len());
    let mut pending: Vec<u32> = (0..graph.node_count()).filter(|&node| graph.is_tensor(node)).collect();
    pending.iter().for_each(|&tensor| leading.insert(tensor));
    while let Some(node) = pending.pop() {
        for &referrer in referrers.of_node(node) {
            if !leading.contains(referrer) {
                leading.insert(referrer);
                pending.push(referrer);
            }
        }
    }
    leading
}

/// The references of a graph by what they lead to, in compressed rows.
struct Referrers {
    /// Where the referrers of each node begin in `nodes`, and the end of the last.
    starts: Vec<u32>,
    nodes: Vec<u32>,
}

impl Referrers {
    fn of(graph: &Graph) -> Self {
        let mut starts = vec![0_u32; graph.len() + 1];
        for node in 0..graph.node_count() {
            graph.targets(node).iter().for_each(|&target| starts[target as usize] += 1);
        }
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        // Rows are filled from their ends, which turns the ends into starts.
        let mut nodes = vec![0; graph.edge_count()];
        for node in 0..graph.node_count() {
            for &target in graph.targets(node) {
                let start = &mut starts[target as usize];
                *start -= 1;
                nodes[*start as usize] = node;
            }
        }
        Self { starts, nodes }
    }

    fn of_node(&self, node: u32) -> &[u32] {
        &self.nodes[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }
}
