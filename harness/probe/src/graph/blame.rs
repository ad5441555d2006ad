//! Which cycle keeps which tensor.

use super::alike::AlikeCycles;
use super::cycle::is_carrier;
use super::labels::Labels;
use super::scc::Components;
use super::search::{Search, UNREACHED};
use super::tensors::Tensors;
use super::traverse::Graph;
use super::types::mix;

/// Positions count in a path's fingerprint only where there are few: an object's attributes differ
/// from each other, the entries of a cache do not.
const FEW: usize = 64;

/// A cycle per component, and a shortest path from a cycle to each tensor.
pub struct Blame {
    pub cycles: Vec<Vec<u32>>,
    /// Equal for components whose cycles look alike.
    pub fingerprints: Vec<u64>,
    /// Whether a component leads to tensors that are nearer to another one.
    pub feeds: Vec<bool>,
    /// By tensor, in the order of [`Tensors::all`]: the nearest component.
    pub owners: Vec<Option<u32>>,
    /// By tensor: equal for paths that look alike.
    pub path_fingerprints: Vec<u64>,
    search: Search,
}

impl Blame {
    /// The shortest path from the owner's cycle to a tensor that has one.
    pub fn path(&self, tensor: u32) -> Vec<u32> {
        self.search.path(tensor)
    }
}

pub fn blame(
    graph: &Graph,
    components: &Components,
    tensors: &Tensors,
    labels: &mut Labels<'_, '_>,
) -> Blame {
    let mut search = Search::new(graph.len());
    let mut alike = AlikeCycles::new(graph.len());
    let cycles: Vec<Vec<u32>> = (0..components.len())
        .map(|component| alike.cycle(graph, components, component, &mut search, labels))
        .collect();
    let fingerprints = cycles.iter().map(|cycle| fingerprint(graph, cycle, labels)).collect();

    let mut owner_of = vec![UNREACHED; graph.len()];
    for (component, cycle) in (0..).zip(&cycles) {
        let has_owner = cycle.iter().any(|&node| !is_carrier(graph.kind(node)));
        for &node in cycle {
            if !has_owner || !is_carrier(graph.kind(node)) {
                search.begin(node);
                owner_of[node as usize] = component;
            }
        }
    }
    // All cycles search at once, so each tensor is found by the nearest.
    search.run(
        graph,
        |_| true,
        |node, _, parent| {
            if let Some(parent) = parent {
                owner_of[node as usize] = owner_of[parent as usize];
            }
            true
        },
    );
    let feeds = feeding(graph, &owner_of, components.len());
    let mut paths = PathFingerprints::new(graph.len());
    Blame {
        path_fingerprints: tensors
            .all
            .iter()
            .map(|tensor| paths.of(graph, &search, tensor.node, labels))
            .collect(),
        owners: tensors
            .all
            .iter()
            .map(|tensor| Some(owner_of[tensor.node as usize]).filter(|_| search.is_reached(tensor.node)))
            .collect(),
        cycles,
        fingerprints,
        feeds,
        search,
    }
}

fn feeding(graph: &Graph, owner_of: &[u32], components: usize) -> Vec<bool> {
    let mut feeds = vec![false; components];
    for node in 0..graph.node_count() {
        let owner = owner_of[node as usize];
        if owner == UNREACHED || feeds[owner as usize] {
            continue;
        }
        feeds[owner as usize] = graph.targets(node).iter().any(|&target| owner_of[target as usize] != owner);
    }
    feeds
}

fn fingerprint(graph: &Graph, cycle: &[u32], labels: &mut Labels<'_, '_>) -> u64 {
    (0..cycle.len()).fold(0, |hash, at| {
        let target = cycle[(at + 1) % cycle.len()];
        mix(mix(hash, labels.of(graph, cycle[at])), ordinal(graph, cycle[at], target))
    })
}

/// Which of the references of `node` leads to `target`, as far as that tells attributes apart.
fn ordinal(graph: &Graph, node: u32, target: u32) -> u64 {
    let targets = graph.targets(node);
    if graph.kind(node) == torchleak_protocol::NodeKind::List || targets.len() > FEW {
        return 0;
    }
    targets.iter().position(|&other| other == target).map_or(0, |position| position as u64 + 1)
}

/// Fingerprints of paths. What two paths have in common is computed once, so that a chain of
/// 100,000 objects, each with a tensor, costs no more than its length.
pub struct PathFingerprints {
    /// Zero where not known.
    known: Vec<u64>,
    pending: Vec<u32>,
}

impl PathFingerprints {
    pub fn new(len: usize) -> Self {
        Self { known: vec![0; len], pending: Vec::new() }
    }

    pub fn of(&mut self, graph: &Graph, search: &Search, node: u32, labels: &mut Labels<'_, '_>) -> u64 {
        let mut at = node;
        while self.known[at as usize] == 0 {
            self.pending.push(at);
            match search.parent(at) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        while let Some(next) = self.pending.pop() {
            let before = search
                .parent(next)
                .map_or(0, |parent| mix(self.known[parent as usize], ordinal(graph, parent, next)));
            self.known[next as usize] = mix(before, labels.of(graph, next)) | 1;
        }
        self.known[node as usize]
    }
}
