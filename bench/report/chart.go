package main

import (
	"bytes"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chart has a point for each series in each group, the median of its rounds, in a bar from the least to the
// greatest.
type chart struct {
	title          string
	groups, series []string
	of             func(series, group int) []float64
	log            bool
	lines          bool // from group to group
}

// colours are told apart by those who see fewer of them (Okabe and Ito, 2008).
var colours = []color.Color{
	color.RGBA{0, 0, 0, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 114, 178, 255}, color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{86, 180, 233, 255}, color.RGBA{110, 110, 110, 255},
}

var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}

const width, height = 24 * vg.Centimeter, 11 * vg.Centimeter

// points are a series: medians, and how far the rounds reach from them.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (c *chart) points(series int) (p points) {
	// The points of a group stand side by side, in its middle.
	shift := 0.0
	if !c.lines {
		shift = (float64(series) - float64(len(c.series)-1)/2) * 0.8 / float64(len(c.series))
	}
	for group := range c.groups {
		rounds := c.of(series, group)
		if len(rounds) == 0 {
			continue
		}
		median, least, greatest := spread(rounds)
		if c.log && least <= 0 {
			continue // it has no place
		}
		p.XYs = append(p.XYs, plotter.XY{X: float64(group) + shift, Y: median})
		p.YErrors = append(p.YErrors, struct{ Low, High float64 }{median - least, greatest - median})
	}
	return p
}

// ticks of a logarithmic axis are at 1, 2 and 5 and their multiples of powers of ten.
func ticks(least, greatest float64) (all []plot.Tick) {
	for power := math.Pow10(int(math.Floor(math.Log10(least)))); power <= greatest; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * power; v >= least && v <= greatest {
				all = append(all, plot.Tick{Value: v, Label: thousands(strconv.FormatFloat(v, 'f', -1, 64))})
			}
		}
	}
	return all
}

func (c *chart) image(format string) ([]byte, error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	p := plot.New()
	p.Title.Text, p.Title.Padding = c.title, vg.Points(8)
	labels := make([]string, len(c.groups))
	for i, group := range c.groups {
		labels[i] = strings.ReplaceAll(group, ", ", ",\n") // long ones would run into one another
	}
	p.NominalX(labels...)
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	p.Add(grid)
	drawn := false
	for i, name := range c.series {
		pts := c.points(i)
		if len(pts.XYs) == 0 {
			continue
		}
		drawn = true
		line, marks, err := plotter.NewLinePoints(pts.XYs)
		if err != nil {
			return nil, err
		}
		bars, err := plotter.NewYErrorBars(pts)
		if err != nil {
			return nil, err
		}
		colour := colours[i%len(colours)]
		marks.Color, marks.Shape, marks.Radius = colour, shapes[i%len(shapes)], vg.Points(3)
		line.Color, bars.Color = colour, colour
		if c.lines {
			p.Add(line)
		}
		p.Add(bars, marks)
		p.Legend.Add(name, marks)
	}
	if c.log && drawn {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(ticks)
		p.Y.Min, p.Y.Max = p.Y.Min/1.15, p.Y.Max*1.15
	}
	p.X.Min, p.X.Max = -0.5, float64(len(c.groups))-0.5+0.22*float64(len(c.groups)) // room for the legend
	to, err := p.WriterTo(width, height, format)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := to.WriteTo(&b); err != nil {
		return nil, err
	}
	// Few have that font: these are as wide.
	return []byte(strings.ReplaceAll(b.String(), "font-family:Liberation Sans;", "font-family:Liberation Sans, Arial, Helvetica, sans-serif;")), nil
}

func (c *chart) svg() ([]byte, error) { return c.image("svg") }
