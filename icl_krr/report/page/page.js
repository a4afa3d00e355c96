{{ library }}
const OPTIONS = {
  config: {{ config | tojson }},
  renderer: "svg",
  ast: true, // expressions are interpreted, because the policy of the page forbids `eval`
  actions: false,
  defaultStyle: false,
  logLevel: 1,
  tooltip: { theme: "custom" },
};

for (const board of document.querySelectorAll(".board")) {
  const { axes, data, charts } = JSON.parse(board.querySelector("script").textContent);
  const at = {};
  const views = [];

  async function draw(element) {
    const { spec, reads } = charts[element.dataset.chart];
    const known = { ...at, ...Object.fromEntries(reads.map((name) => [name, data[name]])) };
    const params = Object.entries(known).map(([name, value]) => ({ name, value }));
    const { view } = await vegaEmbed(element, { ...spec, params }, OPTIONS);
    views.push(view);
    move(view);
  }

  function move(view) {
    for (const [name, place] of Object.entries(at)) view.signal(name, place);
    return view.runAsync();
  }

  function follow() {
    for (const slider of board.querySelectorAll("input")) {
      at[slider.name] = Number(slider.value);
      const words = axes[slider.name][slider.value];
      slider.setAttribute("aria-valuetext", words);
      slider.previousElementSibling.textContent = words;
    }
    for (const cell of board.querySelectorAll("[data-path]")) {
      const path = JSON.parse(cell.dataset.path);
      cell.textContent = path.reduce((found, step) => found[at[step] ?? step], data);
    }
    views.forEach(move);
  }

  board.addEventListener("input", follow);
  window.addEventListener("pageshow", follow); // browsers may restore slider positions
  board.querySelector(".controls")?.removeAttribute("hidden");
  follow();
  const seen = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) {
          seen.unobserve(target);
          draw(target);
        }
      }
    },
    { rootMargin: "50%" },
  );
  board.querySelectorAll(".chart").forEach((element) => seen.observe(element));
}

// Only boxes that scroll can receive keyboard focus.
function stops() {
  for (const box of document.querySelectorAll(".scroll")) {
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
  }
}

window.addEventListener("resize", stops);
document.addEventListener("toggle", stops, true);
stops();
