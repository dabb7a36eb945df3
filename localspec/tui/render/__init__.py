"""Pictures of snapshots as `rich.text.Text`: pure functions, no Textual.

What a picture means is in its glyphs and words; colour only helps. Styles are named (`localspec.tui.render.styles`):
a console or an app gives the names their looks.
"""
