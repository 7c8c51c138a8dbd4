// A block manager that the kit can ask: a list of free blocks. To build it: rustc -O subject.rs
use std::collections::BTreeMap;

#[derive(Clone, Default)]
struct Request { length: usize, computed: usize, table: Vec<usize> }
struct Pool { block_size: usize, max_requests: usize, free: Vec<usize>, requests: BTreeMap<String, Request> }

fn get<'a>(line: &'a str, key: &str) -> &'a str {  // a number, a string, or the inside of a list; "" without the key
    let value = line.split_once(&format!("\"{key}\":")).map_or("", |(_, value)| value);
    value.trim_start_matches(['[', '"']).split([']', '"', '}']).next().unwrap().trim_end_matches(',')
}

fn run(pool: &mut Pool, blocks: usize, line: &str) -> String {  // does what is asked, and tells the outcome
    let ok = |slots: &[usize]| format!(r#""outcome":"ok","slots":{slots:?}"#);
    let refused = |reason| format!(r#""outcome":"refused","reason":"{reason}""#);
    let misuse = |argument| format!(r#""outcome":"error","error":"{argument}""#);
    let (op, name, tokens) = (get(line, "op"), get(line, "request"), get(line, "tokens"));
    if op == "observe" { return ok(&[]) }
    if pool.requests.contains_key(name) == (op == "admit") { return misuse("request") }
    let mut r = pool.requests.get(name).cloned().unwrap_or_default();  // in the place of the old one if all is well
    let start = r.length;
    match (op, get(line, "computed").parse()) {
        ("free", _) => { pool.requests.remove(name); pool.free.append(&mut r.table); return ok(&[]) }
        ("commit", Ok(computed)) if r.computed <= computed && computed <= r.length => r.computed = computed,
        ("commit", _) => return misuse("computed"),
        _ if tokens.is_empty() || tokens.contains('-') => return misuse("tokens"),
        _ => r.length += tokens.split(',').count(),  // admit, append
    }
    let need = r.length.div_ceil(pool.block_size) - r.table.len();
    if r.table.len() + need > blocks { return refused("unservable") }
    if op == "admit" && pool.requests.len() == pool.max_requests { return refused("max_requests") }
    if need > pool.free.len() { return refused("capacity") }
    r.table.extend(pool.free.drain(..need));
    let slot = |position| r.table[position / pool.block_size] * pool.block_size + position % pool.block_size;
    let slots: Vec<_> = (start..r.length).filter(|_| op == "append").map(slot).collect();
    pool.requests.insert(name.to_string(), r);
    ok(&slots)
}

fn main() {
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    let header = lines.next().unwrap();  // what the pool is to be like
    let number = |key| get(&header, key).parse().unwrap_or(usize::MAX);
    let (blocks, block_size, max_requests) = (number("num_blocks"), number("block_size"), number("max_requests"));
    let mut pool = Pool { block_size, max_requests, free: (0..blocks).collect(), requests: BTreeMap::new() };
    println!(r#"{{"capabilities":{{}}}}"#);
    for line in lines {
        let outcome = run(&mut pool, blocks, &line);  // and then all that can be seen, whatever was asked for
        let seen: Vec<_> = pool.requests.iter().map(|(name, Request { length, computed, table })|
            format!(r#""{name}":{{"length":{length},"computed":{computed},"table":{table:?}}}"#)).collect();
        println!(r#"{{{outcome},"available_blocks":{},"requests":{{{}}}}}"#, pool.free.len(), seen.join(","));
    }
}
