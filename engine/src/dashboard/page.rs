//! The files of the page.

use super::reply::HTML;

pub struct File {
    pub kind: &'static str,
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

pub fn find(name: &str) -> Option<File> {
    let (kind, text) = match name {
        "" => (HTML, include_str!("page/page.html")),
        "style.css" => ("text/css; charset=utf-8", include_str!("page/style.css")),
        "page.js" => (SCRIPT, include_str!("page/page.js")),
        "show.js" => (SCRIPT, include_str!("page/show.js")),
        "list.js" => (SCRIPT, include_str!("page/list.js")),
        "spark.js" => (SCRIPT, include_str!("page/spark.js")),
        "text.js" => (SCRIPT, include_str!("page/text.js")),
        "icon.svg" => ("image/svg+xml", include_str!("page/icon.svg")),
        _ => return None,
    };
    Some(File { kind, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that follow this text.
    fn named<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
        let rest = text.split(before).skip(1);
        rest.filter_map(|rest| rest.split(['"', '\'']).next()).collect()
    }

    #[test]
    fn all_that_the_page_names_is_there() {
        let page = find("").unwrap().text;
        for name in named(page, "href=\"").into_iter().filter(|name| !name.starts_with('#')) {
            assert!(find(name).is_some(), "{name}");
        }
        for name in named(page, "src=\"") {
            assert!(find(name).is_some(), "{name}");
        }
        for script in ["page.js", "show.js", "list.js", "spark.js", "text.js"] {
            for name in named(find(script).unwrap().text, "from \"./") {
                assert!(find(name).is_some(), "{name}");
            }
        }
        assert!(find("news").is_none() && find("../page.js").is_none());
    }

    #[test]
    fn nothing_of_it_is_elsewhere_or_within_the_page() {
        for name in [
            "",
            "style.css",
            "page.js",
            "show.js",
            "list.js",
            "spark.js",
            "text.js",
            "icon.svg",
        ] {
            let text = find(name).unwrap().text;
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for part in ["http:", "https:", "//cdn", "innerHTML", "style=\"", "onclick", "eval("] {
                assert!(!text.contains(part), "{part} in {name}");
            }
        }
    }
}
