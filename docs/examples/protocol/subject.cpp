// A block manager that the kit can ask: a list of free blocks. To build it: g++ -std=c++17 -O2 subject.cpp -o subject
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
using namespace std;

struct Request { long length = 0, computed = 0; vector<long> table; };
map<string, Request> requests;
vector<long> free_blocks;
long num_blocks, block_size, max_requests;
string line;  // what is asked

string value(string key) {  // the line from behind a key on; empty if it has no such key
    size_t at = line.find("\"" + key + "\":");
    return at == string::npos ? "" : line.substr(at + key.size() + 3);
}
long number(string key, long missing = 0) { return value(key).empty() ? missing : stol(value(key)); }
string text(string key) { return value(key).empty() ? "" : value(key).substr(1, value(key).find('"', 1) - 1); }
string list(const vector<long>& numbers) {
    string all;
    for (long n : numbers) all += (all.empty() ? "" : ",") + to_string(n);
    return "[" + all + "]";
}
const string ok = R"("outcome":"ok")";
string refused(string reason) { return R"("outcome":"refused","reason":")" + reason + "\""; }
string misuse(string argument) { return R"("outcome":"error","error":")" + argument + "\""; }

string grow(Request& r) {  // admit, append
    string tokens = value("tokens").substr(0, value("tokens").find(']'));
    if (tokens == "[" || tokens.find('-') != string::npos) return misuse("tokens");
    long start = r.length, end = start + 1 + count(tokens.begin(), tokens.end(), ',');
    long blocks = (end + block_size - 1) / block_size, need = blocks - r.table.size();
    if (blocks > num_blocks) return refused("unservable");
    if (start == 0 && long(requests.size()) > max_requests) return refused("max_requests");
    if (need > long(free_blocks.size())) return refused("capacity");
    for (; need > 0; need--) r.table.push_back(free_blocks.back()), free_blocks.pop_back();
    vector<long> slots;
    for (; r.length < end; r.length++)
        slots.push_back(r.table[r.length / block_size] * block_size + r.length % block_size);
    return start == 0 ? ok : ok + R"(,"slots":)" + list(slots);
}

string run(string op, string name) {
    if (op == "observe") return ok;
    if (requests.count(name) == (op == "admit")) return misuse("request");
    Request& r = requests[name];  // a new one counts from here on
    string outcome = ok;
    if (op == "admit" || op == "append") outcome = grow(r);
    if (op == "commit" && (number("computed") < r.computed || number("computed") > r.length)) return misuse("computed");
    if (op == "commit") r.computed = number("computed");
    if (op == "free") free_blocks.insert(free_blocks.end(), r.table.begin(), r.table.end());
    if (op == "free" || r.length == 0) requests.erase(name);  // or it was not admitted
    return outcome;
}

int main() {
    while (getline(cin, line)) {
        if (!value("pagedkv_trace").empty()) {  // the header: what the pool is to be like
            num_blocks = number("num_blocks"), block_size = number("block_size");
            max_requests = number("max_requests", 1000000);
            for (long block = 0; block < num_blocks; block++) free_blocks.push_back(block);
            cout << R"({"capabilities":{}})" << endl;
            continue;
        }
        string outcome = run(text("op"), text("request")), seen;
        for (auto& [name, r] : requests)  // all that can be seen, whatever was asked for
            seen += (seen.empty() ? "\"" : ",\"") + name + R"(":{"length":)" + to_string(r.length) + R"(,"computed":)"
                + to_string(r.computed) + R"(,"table":)" + list(r.table) + "}";
        cout << "{" << outcome << R"(,"available_blocks":)" << free_blocks.size() << R"(,"requests":{)" << seen << "}}" << endl;
    }
}
