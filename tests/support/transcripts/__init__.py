"""Scripted regressions as readable transcripts: stimulus in, effects out.

```
> kill B                                     a stimulus; the cluster works for a moment afterwards
    B: down                                  what it showed: answers, then what changed of the picture
```
`text` reads and writes them, `player` plays one on the stage that its first stimulus names.
"""
