//! What a browser makes of a page.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Appended to a copy of the page: what a browser makes of it, as text.
const ASK: &str = r#"<script>
addEventListener("load", () => {
  const all = (what) => [...document.querySelectorAll(what)];
  const named = (node) => node.hasAttribute("aria-label") || node.closest("[aria-label], figure");
  const answers = {
    width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth,
    resources: performance.getEntriesByType("resource").length,
    background: getComputedStyle(document.body).backgroundColor,
    letters: getComputedStyle(document.querySelector(".plot text")).fill,
    dead: all("a[href^='#']").filter((link) => !document.querySelector(link.getAttribute("href"))).length,
    nameless: all("svg, [tabindex='0']").filter((node) => !named(node)).length,
    tables: all("table").length, uncaptioned: all("table:not(:has(caption))").length,
    unscoped: all("th:not([scope])").length, landmarks: all("main, nav, header, footer").length,
    unreachable: all(".scroll, .drawing, pre").filter((node) => node.tabIndex < 0).length,
    drawings: all(".drawing svg").length, plots: all(".plot svg").length,
  };
  document.body.innerHTML = "<pre>ANSWERS" + JSON.stringify(answers) + "</pre>";
});
</script>"#;

/// What the page answers about itself in a window of that width, if the user prefers dark colours (0) or light ones (1).
pub fn shown_by(browser: &Path, page: &str, width: u32, scheme: u32) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked.html");
    std::fs::write(&asked, page.replace("</body>", &format!("{ASK}</body>"))).unwrap();
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]);
    command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    command.args([
        format!("--window-size={width},900"),
        format!("--blink-settings=preferredColorScheme={scheme}"),
    ]);
    command.arg("--dump-dom").arg(format!("file://{}", asked.display())).stderr(Stdio::null());
    let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let answers = shown.split("ANSWERS").last().unwrap().split("</pre>").next().unwrap();
    serde_json::from_str(answers).unwrap_or_else(|error| panic!("{error}: {shown}"))
}
