//! A map that remembers its last keys only.

use std::collections::BTreeMap;

/// Up to `capacity` keys; a new one displaces the one that was put first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    capacity: usize,
    values: BTreeMap<K, (u64, V)>,
    /// By age; exactly the keys of `values`.
    order: BTreeMap<u64, K>,
    puts: u64,
}

impl<K: Copy + Ord, V> Recent<K, V> {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity, values: BTreeMap::new(), order: BTreeMap::new(), puts: 0 }
    }

    /// Puts a key, or renews it.
    pub(super) fn put(&mut self, key: K, value: V) {
        self.puts += 1;
        if let Some((age, _)) = self.values.insert(key, (self.puts, value)) {
            self.order.remove(&age);
        }
        self.order.insert(self.puts, key);
        if self.values.len() > self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.values.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (age, value) = self.values.remove(key)?;
        self.order.remove(&age);
        Some(value)
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_put_first_makes_room() {
        let mut recent = Recent::new(2);
        for key in [1, 2, 1, 3] {
            recent.put(key, key * 10);
        }
        assert_eq!((recent.get(&1), recent.get(&2), recent.get(&3)), (Some(&10), None, Some(&30)));
        assert_eq!(recent.remove(&1), Some(10));
        recent.put(4, 40);
        assert_eq!(recent.get(&3), Some(&30));
    }
}
