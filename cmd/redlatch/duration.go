package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// decodeDuration reads a flag's duration.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := parseDuration(token.String())
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}

// parseDuration reads a duration as Go writes them, or a plain number of seconds as
// flock(1), timeout(1) and sleep(1) do.
func parseDuration(text string) (time.Duration, error) {
	if strings.Trim(text, "+-.0123456789") == "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if ns := seconds * float64(time.Second); err == nil && ns > -1<<63 && ns < 1<<63 {
			return time.Duration(ns), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: give seconds, such as 10 or 0.5, or 500ms, 1m30s, 2h", text)
	}
	return d, nil
}
