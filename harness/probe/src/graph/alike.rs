//! One search for all components that are built alike.
//!
//! The layers of a model, step after step, leave components that differ in nothing but addresses.
//! Where labels and references are the same in the same order, so is the cycle that a search finds.

use rustc_hash::FxHashMap;

use super::cycle::shortest_cycle;
use super::labels::Labels;
use super::scc::Components;
use super::search::{Search, UNREACHED};
use super::traverse::Graph;

/// A description costs as much as it is long; larger components are few and are searched each.
const LARGEST: usize = 48;

/// Cycles that were found before.
pub struct AlikeCycles {
    /// By description: the positions of the cycle's nodes among the members.
    known: FxHashMap<Vec<u64>, Vec<u32>>,
    /// Of the members of the component at hand.
    positions: Vec<u32>,
    description: Vec<u64>,
}

impl AlikeCycles {
    pub fn new(len: usize) -> Self {
        Self { known: FxHashMap::default(), positions: vec![UNREACHED; len], description: Vec::new() }
    }

    /// A shortest cycle through a component.
    pub fn cycle(
        &mut self,
        graph: &Graph,
        components: &Components,
        component: usize,
        search: &mut Search,
        labels: &mut Labels<'_, '_>,
    ) -> Vec<u32> {
        let members = components.members(component);
        if members.len() > LARGEST {
            return shortest_cycle(graph, components, component, search, labels);
        }
        self.describe(graph, members, labels);
        if let Some(cycle) = self.known.get(&self.description) {
            return cycle.iter().map(|&position| members[position as usize]).collect();
        }
        let cycle = shortest_cycle(graph, components, component, search, labels);
        let at = |node: &u32| members.iter().position(|member| member == node);
        let positions = cycle.iter().filter_map(at).filter_map(|position| u32::try_from(position).ok());
        self.known.insert(self.description.clone(), positions.collect());
        cycle
    }

    /// For each member its label, how many references it has to members, and where those are.
    fn describe(&mut self, graph: &Graph, members: &[u32], labels: &mut Labels<'_, '_>) {
        for (position, &node) in (0..).zip(members) {
            self.positions[node as usize] = position;
        }
        self.description.clear();
        for &node in members {
            self.description.push(labels.of(graph, node));
            let count_at = self.description.len();
            self.description.push(0);
            let inside = graph.targets(node).iter().map(|&target| self.positions[target as usize]);
            self.description.extend(inside.filter(|&position| position != UNREACHED).map(u64::from));
            self.description[count_at] = (self.description.len() - count_at - 1) as u64;
        }
        for &node in members {
            self.positions[node as usize] = UNREACHED;
        }
    }
}
