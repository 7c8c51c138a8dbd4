"""`python -m tests.adapters vllm`: hold the subjects of one project, write its numbers and traces, and the page."""

import argparse
import json
import logging
import sys
import warnings

from tests.adapters.campaign import ROOT, run
from tests.adapters.campaigns import CAMPAIGNS
from tests.adapters.page import write


def tell(what: str) -> None:
    """Progress, for whoever waits."""
    print(what, file=sys.stderr, flush=True)


def main() -> None:
    """Run, and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.adapters", description=__doc__)
    parser.add_argument("campaign", choices=CAMPAIGNS, help="the project; its package must be installed")
    parser.add_argument("--programs", type=int, default=500, help="random programs for each subject (%(default)s)")
    parser.add_argument("--verdicts", action="store_true", help="run nothing: write down the verdicts as they are now")
    options = parser.parse_args()
    campaign, path = CAMPAIGNS[options.campaign], ROOT / "docs" / "conformance" / f"{options.campaign}.json"
    warnings.simplefilter("ignore")  # what warns while they are imported is not ours to mend
    logging.disable(logging.WARNING)
    if options.verdicts:
        data = json.loads(path.read_text(encoding="utf-8")) | {"not_run": campaign.not_run}
        data["broken"] = [entry | campaign.verdict(entry["factory"], entry["law"]) for entry in data["broken"]]
    else:
        data = run(campaign, options.programs, tell)
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write()
    broken = len({entry["law"] for entry in data["broken"]})
    print(f"{path.relative_to(ROOT)}: {len(data['kept'])} laws kept, {broken} broken; docs/conformance.md is written")


if __name__ == "__main__":
    main()
