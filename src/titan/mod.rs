//! torchtitan's logs: read as a stream, kept in bounded memory, judged by what they can show.
//!
//! Data flows one way: bytes -> lines (`input`, `follow`) -> events (`parse`) -> ranks (`track`) -> numbers and a word
//! (`judge`) -> sentences (`words`) and a picture (`plot`).

mod error;
mod event;
mod follow;
mod input;
mod judge;
mod layers;
mod parse;
mod part;
mod plot;
mod prefix;
mod tally;
mod text;
mod thin;
mod track;
mod trend;
mod words;

pub use error::TitanError;
pub use event::Point;
pub use follow::{Watcher, follow};
pub use input::{Ended, is_stream, read};
pub use judge::{Judged, JudgedPart, JudgedRank, Options, Word, judge, label};
pub use part::Part;
pub(crate) use plot::COLOURS;
pub use plot::svg;
pub use text::plain;
pub use track::{Log, Rows, Track};
pub use trend::Trend;
pub use words::sentences;
