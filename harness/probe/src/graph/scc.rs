//! Strongly connected components.
//!
//! This is Pearce's variant of Tarjan's algorithm: it needs one number a node instead of three. It
//! keeps a stack of its own, because a chain of 100,000 objects would overflow the thread's.

use super::bits::Bits;
use super::traverse::Graph;

/// The components that have a cycle.
pub struct Components {
    /// Nodes of these components, one component after another.
    pub members: Vec<u32>,
    /// The component of each node; nodes of equal number are strongly connected.
    pub of: Vec<u32>,
    /// Where each of those components begins in `members`, and the end of the last.
    pub starts: Vec<u32>,
}

impl Components {
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn members(&self, component: usize) -> &[u32] {
        &self.members[self.starts[component] as usize..self.starts[component + 1] as usize]
    }
}

/// A node in progress: the next of its edges to look at.
struct Visit {
    node: u32,
    edge: u32,
    is_root: bool,
}

pub fn components(graph: &Graph) -> Components {
    let len = graph.len();
    let mut walk = Walk {
        graph,
        low: vec![0; len],
        next_index: 1,
        next_component: u32::MAX,
        stack: Vec::new(),
        self_loops: Bits::new(len),
        found: Components { members: Vec::new(), of: Vec::new(), starts: vec![0] },
    };
    let mut visits = Vec::new();
    for node in 0..graph.node_count() {
        if walk.low[node as usize] != 0 {
            continue;
        }
        if graph.edge_start(node) == graph.edge_end(node) {
            walk.complete_leaf(node);
        } else {
            walk.visit(node, &mut visits);
        }
    }
    let Walk { low, found, .. } = walk;
    Components { of: low, ..found }
}

struct Walk<'a> {
    graph: &'a Graph,
    /// Zero before a visit, then the lowest index that is reached, and at last the component's
    /// number, counted down from the highest so that it is above every index in use.
    low: Vec<u32>,
    next_index: u32,
    next_component: u32,
    stack: Vec<u32>,
    self_loops: Bits,
    found: Components,
}

impl Walk<'_> {
    fn visit(&mut self, start: u32, visits: &mut Vec<Visit>) {
        visits.push(self.begin(start));
        while let Some(visit) = visits.last_mut() {
            let node = visit.node;
            if visit.edge < self.graph.edge_end(node) {
                let target = self.graph.edge(visit.edge);
                if self.low[target as usize] == 0 {
                    if self.graph.edge_start(target) < self.graph.edge_end(target) {
                        // The edge is looked at again when the target is done.
                        let next = self.begin(target);
                        visits.push(next);
                        continue;
                    }
                    self.complete_leaf(target);
                }
                visit.edge += 1;
                if self.low[target as usize] < self.low[node as usize] {
                    self.low[node as usize] = self.low[target as usize];
                    visit.is_root = false;
                }
                if target == node {
                    self.self_loops.insert(node);
                }
                continue;
            }
            let is_root = visit.is_root;
            visits.pop();
            if is_root {
                self.complete(node);
            } else {
                self.stack.push(node);
            }
        }
    }

    fn begin(&mut self, node: u32) -> Visit {
        self.low[node as usize] = self.next_index;
        self.next_index += 1;
        Visit { node, edge: self.graph.edge_start(node), is_root: true }
    }

    /// A node that refers to nothing is a component of its own. Most tensors are such, and it needs no stack.
    #[inline]
    fn complete_leaf(&mut self, node: u32) {
        self.low[node as usize] = self.next_component;
        self.next_component -= 1;
    }

    /// Takes a component off the stack, whose root is `root`.
    fn complete(&mut self, root: u32) {
        let low = self.low[root as usize];
        let begin = self
            .stack
            .iter()
            .rposition(|&member| self.low[member as usize] < low)
            .map_or(0, |position| position + 1);
        self.next_index -= u32::try_from(self.stack.len() - begin).unwrap_or(0) + 1;
        self.stack.push(root);
        let members = &self.stack[begin..];
        for &member in members {
            self.low[member as usize] = self.next_component;
        }
        self.next_component -= 1;
        if members.len() > 1 || self.self_loops.contains(root) {
            self.found.members.extend_from_slice(members);
            self.found.starts.push(u32::try_from(self.found.members.len()).unwrap_or(u32::MAX));
        }
        self.stack.truncate(begin);
    }
}
