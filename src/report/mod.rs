//! What people and programs read: tables, torchtitan's step lines, JSON.

