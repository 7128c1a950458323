// The reader's view, kept in the address's fragment: a reload and a link show it again.

const state = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");

function remember(name, value) {
  if (value == null || value === "") state.delete(name);
  else state.set(name, value);
  const text = state.toString();
  history.replaceState(null, "", text ? `#?${text}` : `${location.pathname}${location.search}`);
}

// Links to sections scroll without replacing the view in the fragment.
addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  const target = link && document.getElementById(link.getAttribute("href").slice(1));
  if (!target) return;
  event.preventDefault();
  goTo(target);
  remember("at", target.id);
});

function goTo(target) {
  if (!target) return;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
  if (!target.hasAttribute("tabindex")) target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
}
