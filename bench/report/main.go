// Report makes the page of benchmarks, docs/benchmarks.md, and its charts, of the figures that the
// benchmarks have recorded: `make bench` runs both.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redlatch/redlatch/bench/figures"
)

func main() {
	from := flag.String("figures", "../docs/benchmarks/figures.jsonl", "what go test . -figures=FILE has written")
	to := flag.String("docs", "../docs", "the folder of the page, which has its charts in benchmarks/")
	flag.Parse()
	if err := write(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// write makes the page and the charts in a folder.
func write(from, folder string) error {
	files, err := files(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, "benchmarks"), 0o777); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// files are the page and its charts, by their names in the folder docs.
func files(from string) (map[string][]byte, error) {
	text, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	runs, err := figures.Read(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	p := newPage(runs)
	page, err := p.markdown()
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{"benchmarks.md": page}
	for name, c := range p.drawn {
		if all[filepath.Join("benchmarks", name)], err = c.svg(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}
