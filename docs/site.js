// What scrolls sideways can be reached by the keyboard.
function focusScrolling() {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
  }
}
addEventListener("load", () => requestAnimationFrame(focusScrolling));
addEventListener("resize", focusScrolling);
