// Light, dark, or as the system has it; remembered where the browser allows it.

const THEMES = { "": ["◐", "as the system has them"], light: ["☀", "light"], dark: ["☾", "dark"] };

function startTheme(changed) {
  const button = byId("theme");
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    const [sign, words] = THEMES[theme];
    button.textContent = sign;
    button.title = `colours: ${words}`;
    button.setAttribute("aria-label", button.title);
    changed();
  };
  let theme = "";
  try {
    theme = localStorage.getItem("bench-theme") || "";
  } catch {
    // a page from a file may have no storage
  }
  show(theme in THEMES ? theme : "");
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(document.documentElement.dataset.theme || "") + 1) % names.length];
    show(theme);
    try {
      localStorage.setItem("bench-theme", theme);
    } catch {
      // then it is forgotten
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
