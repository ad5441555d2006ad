//! The cycle that is shown for a component, chosen alike for alike components.

use torchleak_protocol::NodeKind;

use super::labels::Labels;
use super::scc::Components;
use super::search::{Search, weight};
use super::traverse::Graph;

/// Below this size every node of a component is tried.
const SMALL: usize = 48;
/// In a larger one so many are.
const TRIES: usize = 32;

/// Dicts, tuples and cells that belong to another object: a path is easier to read from their owner.
pub fn is_carrier(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Dict | NodeKind::Tuple | NodeKind::Cell)
}

/// A shortest cycle through a component, beginning where a reader would.
///
/// Among cycles of equal weight the order of labels decides, never that of addresses; else the
/// layers of a model would be told apart.
pub fn shortest_cycle(
    graph: &Graph,
    components: &Components,
    component: usize,
    search: &mut Search,
    labels: &mut Labels<'_, '_>,
) -> Vec<u32> {
    let members = components.members(component);
    let id = components.of[members[0] as usize];
    let mut best: Option<(u32, Vec<u64>, Vec<u32>)> = None;
    // A large component is searched as long as that takes no longer than walking it a few times.
    let mut budget = 4_000_000 + 4 * members.len();
    for start in starts(graph, members, labels) {
        let limit = best.as_ref().map_or(u32::MAX, |(length, _, _)| *length);
        let mut closing: Option<(u32, u32)> = None;
        search.clear();
        search.begin(start);
        search.run(
            graph,
            |node| components.of[node as usize] == id,
            |node, distance, _| {
                if closing.is_some_and(|(length, _)| length <= distance) || distance > limit {
                    return false;
                }
                let degree = graph.targets(node).len();
                budget = budget.saturating_sub(degree);
                if graph.targets(node).contains(&start) {
                    let length = distance + weight(graph.kind(node), graph.kind(start));
                    if closing.is_none_or(|(shortest, _)| length < shortest) {
                        closing = Some((length, node));
                    }
                }
                true
            },
        );
        if let Some((length, last)) = closing
            && length <= limit
        {
            let (key, cycle) = canonical(graph, search.path(last), labels);
            let is_better =
                best.as_ref().is_none_or(|(known, known_key, _)| (length, &key) < (*known, known_key));
            if is_better {
                best = Some((length, key, cycle));
            }
        }
        if budget == 0 && best.is_some() {
            break;
        }
    }
    search.clear();
    best.map_or_else(|| vec![members[0]], |(_, _, cycle)| cycle)
}

/// Where to search for cycles from, the most telling nodes first.
fn starts(graph: &Graph, members: &[u32], labels: &mut Labels<'_, '_>) -> Vec<u32> {
    let mut starts = members.to_vec();
    if members.len() > SMALL {
        starts.sort_by_cached_key(|&node| (rank(graph.kind(node)), graph.facts(node).hash));
        // Alike nodes are told apart by their code only among the first, which bounds the reads.
        starts.truncate(8 * TRIES);
        starts.sort_by_cached_key(|&node| (rank(graph.kind(node)), labels.of(graph, node)));
        starts.truncate(TRIES);
    }
    starts
}

/// What a reader would rather begin with.
fn rank(kind: NodeKind) -> u8 {
    match kind {
        NodeKind::Function | NodeKind::Partial | NodeKind::Method => 0,
        NodeKind::Generator | NodeKind::Coroutine => 1,
        NodeKind::Frame => 2,
        NodeKind::Exception => 3,
        NodeKind::AutogradNode | NodeKind::Instance => 4,
        NodeKind::Module | NodeKind::Tensor => 5,
        NodeKind::Type => 6,
        NodeKind::Dict | NodeKind::List | NodeKind::Set | NodeKind::Tuple => 8,
        NodeKind::Cell => 9,
        NodeKind::Traceback | NodeKind::Weakref | NodeKind::Other => 7,
    }
}

/// Rotates a cycle to begin with its most telling node, and gives its labels in that order.
fn canonical(graph: &Graph, mut cycle: Vec<u32>, labels: &mut Labels<'_, '_>) -> (Vec<u64>, Vec<u32>) {
    let keys: Vec<(u8, u64)> =
        cycle.iter().map(|&node| (rank(graph.kind(node)), labels.of(graph, node))).collect();
    // Where two nodes are alike, what follows them decides; a few steps are enough for a reader.
    let lowest = keys.iter().min().copied();
    let following = |start: usize| -> Vec<(u8, u64)> {
        (0..keys.len().min(16)).map(|step| keys[(start + step) % keys.len()]).collect()
    };
    let first = (0..keys.len())
        .filter(|&start| Some(keys[start]) == lowest)
        .min_by_key(|&start| following(start))
        .unwrap_or(0);
    cycle.rotate_left(first);
    let sequence = (0..keys.len()).map(|step| keys[(first + step) % keys.len()].1).collect();
    (sequence, cycle)
}
