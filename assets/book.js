// What scrolls sideways can be reached with the keyboard. The theme sees to this for code alone, and not for code that
// has been folded away.
"use strict";
(() => {
  const scrollers = "pre, mjx-container, .pst-scrollable-table-container, .cell_output .output";
  const update = () => {
    for (const box of document.querySelectorAll(scrollers)) {
      const scrolls = box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "visible";
      if (scrolls) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  const start = () => {
    new ResizeObserver(update).observe(document.getElementById("main-content") || document.body);
    update();
  };
  window.addEventListener("load", () => Promise.resolve(window.MathJax?.startup?.promise).then(start));
})();
