"""A subject that reads its answers from a file, and misbehaves at one of them. It needs nothing, so it starts at once.

python scripted.py ANSWERS HOW STEP      # the header is step 0
"""

import os
import signal
import sys
import time

ALWAYS_S = 600.0

SAYS = {
    "says hello": "hello\n",
    "answers with a list": "[]\n",
    "answers with an unknown key": '{"outcome":"ok","colour":"red"}\n',
    "answers with an unknown outcome": '{"outcome":"perhaps"}\n',
    "answers twice": "ANSWERANSWER",
    "debugs before its answer": "debug: freeing\nANSWER",
    "debugs behind its answer": "ANSWERdebug: freed\n",
    "says bytes that are no text": "\udcff\udcfeANSWER",
    "says NaN": '{"outcome":"ok","evicted":NaN}\n',
    "says a key twice": '{"outcome":"ok","outcome":"refused"}\n',
    "says a number of 5000 digits": '{"outcome":"ok","evicted":' + "1" * 5_000 + "}\n",
    "nests deeply": "[" * 100_000 + "\n",
}
"""In place of an answer, which ANSWER stands for."""


def misbehave(how: str, answer: str) -> None:
    """In any other way."""
    match how:
        case "raises SIGSEGV" | "raises SIGKILL" | "raises SIGABRT":
            os.kill(os.getpid(), getattr(signal, how.split()[1]))
        case "exits with 0" | "exits with 3":
            sys.stderr.write("scripted: cannot go on\n")
            sys.stderr.flush()
            os._exit(int(how[-1]))
        case "exits within a line":
            say(answer[:10])
            os._exit(1)
        case "hangs":
            time.sleep(ALWAYS_S)
        case "hangs within a line":
            say(answer[:10])
            time.sleep(ALWAYS_S)
        case "talks for ever":
            while True:
                say("la" * 1_000)
                time.sleep(0.001)
        case "closes stdout":
            os.close(1)
            time.sleep(ALWAYS_S)
        case "floods stderr":
            while True:
                os.write(2, b"x" * 2**16)
        case "leaves a child with its pipes":
            if (child := os.fork()) == 0:
                time.sleep(ALWAYS_S)
            os.write(2, f"left {child}".encode())
            os.kill(os.getpid(), signal.SIGSEGV)
        case "ignores the end of its input" | "leaves a child that ignores it":
            say(answer)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if how.startswith("ignores") or os.fork() == 0:
                time.sleep(ALWAYS_S)
        case "writes much to stderr":
            sys.stderr.write("x" * 1_000_000)
            say(answer)
        case _:
            say(answer)


def say(text: str) -> None:
    """On stdout, all of it."""
    left = text.encode(errors="surrogateescape")
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    answers, how, at = sys.argv[1:4]
    with open(answers, encoding="utf-8") as file:
        lines = file.readlines()
    for number, line in enumerate(lines):
        sys.stdin.readline()
        if number != int(at):
            say(line)
        elif how in SAYS:
            say(SAYS[how].replace("ANSWER", line))
        else:
            misbehave(how, line)
