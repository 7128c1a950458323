// All words that are seen without scrolling.
(() => {
  const words = [];
  const add = (text, boxes) => {
    const seen = ({ width, left, right, top, bottom }) =>
      width > 1 && right > 0 && left < innerWidth && bottom > 0 && top < innerHeight;
    if ([...boxes].some(seen)) words.push(...(text.match(/\S*[A-Za-z]{2,}\S*/g) ?? []));
  };
  const shown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) {
    const { parentElement, textContent } = nodes.currentNode;
    const range = document.createRange();
    range.selectNodeContents(nodes.currentNode);
    if (shown(parentElement) && !parentElement.closest("select")) add(textContent, range.getClientRects());
  }
  for (const menu of document.querySelectorAll("select")) {
    if (shown(menu)) add(menu.selectedOptions[0].textContent, menu.getClientRects());
  }
  return words;
})()
