//! Shortest paths by weight, over a graph of any depth.

use torchleak_protocol::NodeKind;

use super::traverse::Graph;

pub const UNREACHED: u32 = u32::MAX;

/// No weight is above this.
const HEAVIEST: u32 = 8;

/// What a reference costs on a path. A path reads best when it follows what a program wrote:
/// variables, attributes and entries, rather than the bookkeeping of classes and wrapped functions.
pub fn weight(source: NodeKind, target: NodeKind) -> u32 {
    match (source, target) {
        // A closure is one step for a reader: function, tuple, cell, value.
        (NodeKind::Tuple, NodeKind::Cell) | (NodeKind::Cell, _) => 0,
        // Attributes of functions are mostly kept by decorators, beside the closure that matters.
        (NodeKind::Function, NodeKind::Dict) => 2,
        // Everything that has a class leads to all that the class holds.
        (NodeKind::Type, NodeKind::Tuple | NodeKind::Type) => HEAVIEST,
        (NodeKind::Other, NodeKind::Type) => HEAVIEST,
        (_, NodeKind::Type) => 4,
        // A weak reference holds what it calls, which is rarely why something is alive.
        (NodeKind::Weakref, _) => 2,
        _ => 1,
    }
}

/// Distances from some nodes, kept between searches so that a small search costs little.
pub struct Search {
    distance: Vec<u32>,
    parent: Vec<u32>,
    touched: Vec<u32>,
    /// Nodes to look at by distance, modulo the heaviest weight and one.
    queues: Vec<Vec<u32>>,
}

impl Search {
    pub fn new(len: usize) -> Self {
        Self {
            distance: vec![UNREACHED; len],
            parent: vec![UNREACHED; len],
            touched: Vec::new(),
            queues: vec![Vec::new(); HEAVIEST as usize + 1],
        }
    }

    pub fn parent(&self, node: u32) -> Option<u32> {
        Some(self.parent[node as usize]).filter(|&parent| parent != UNREACHED)
    }

    pub fn is_reached(&self, node: u32) -> bool {
        self.distance[node as usize] != UNREACHED
    }

    pub fn distance(&self, node: u32) -> u32 {
        self.distance[node as usize]
    }

    /// The path to a reached node from where the search began, both included.
    pub fn path(&self, node: u32) -> Vec<u32> {
        let mut path = vec![node];
        while let Some(parent) = self.parent(path[path.len() - 1]) {
            path.push(parent);
        }
        path.reverse();
        path
    }

    /// Forgets the last search.
    pub fn clear(&mut self) {
        for &node in &self.touched {
            self.distance[node as usize] = UNREACHED;
            self.parent[node as usize] = UNREACHED;
        }
        self.touched.clear();
        self.queues.iter_mut().for_each(Vec::clear);
    }

    pub fn begin(&mut self, node: u32) {
        if self.distance[node as usize] == UNREACHED {
            self.distance[node as usize] = 0;
            self.touched.push(node);
            self.queues[0].push(node);
        }
    }

    /// Searches from the nodes given to [`begin`](Self::begin) through the nodes that `allows` accepts.
    /// `settle` is told of each node with its final distance and parent, nearest first, and ends the
    /// search by returning false. Edges back to a start are not followed.
    pub fn run(
        &mut self,
        graph: &Graph,
        allows: impl Fn(u32) -> bool,
        mut settle: impl FnMut(u32, u32, Option<u32>) -> bool,
    ) {
        let mut distance = 0;
        let mut empty = 0;
        while empty <= HEAVIEST {
            let slot = (distance % (HEAVIEST + 1)) as usize;
            let mut position = 0;
            empty = if self.queues[slot].is_empty() { empty + 1 } else { 0 };
            // Edges without weight add to this queue while it is read.
            while position < self.queues[slot].len() {
                let node = self.queues[slot][position];
                position += 1;
                // A node that was reached on a shorter way since has been settled before.
                if self.distance[node as usize] != distance {
                    continue;
                }
                if !settle(node, distance, self.parent(node)) {
                    return;
                }
                self.relax(graph, node, distance, &allows);
            }
            self.queues[slot].clear();
            distance += 1;
        }
    }

    fn relax(&mut self, graph: &Graph, node: u32, distance: u32, allows: &impl Fn(u32) -> bool) {
        let kind = graph.kind(node);
        for &target in graph.targets(node) {
            if !allows(target) {
                continue;
            }
            let found = distance + weight(kind, graph.kind(target));
            let known = &mut self.distance[target as usize];
            if found >= *known {
                continue;
            }
            if *known == UNREACHED {
                self.touched.push(target);
            }
            *known = found;
            self.parent[target as usize] = node;
            self.queues[(found % (HEAVIEST + 1)) as usize].push(target);
        }
    }
}
