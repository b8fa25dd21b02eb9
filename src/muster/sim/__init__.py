"""The simulator: replays real or synthetic cluster traces through the real controller on a virtual clock."""
