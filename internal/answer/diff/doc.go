// Package diff describes the differences between two plans of a node: which
// frontends are added, removed and changed, and how, and which settings differ. The
// wording is that of the Text methods of plan.
package diff
