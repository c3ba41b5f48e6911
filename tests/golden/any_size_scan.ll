; running sum
; problem   points=1200  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64 unroll=0
; engine    scan

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %s1 = alloca [1 x float], align 64
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %v3 = icmp slt i64 %first, %last
  br i1 %v3, label %l2.body, label %l2.end
l2.body:
  %l2.i = phi i64 [ %first, %entry ], [ %l2.next, %l4.end ]
  %v5 = icmp slt i64 0, %size0
  br i1 %v5, label %l4.body, label %l4.end
l4.body:
  %l4.i = phi i64 [ 0, %l2.body ], [ %l4.next, %l10.end ]
  %v7 = icmp slt i64 0, 1
  br i1 %v7, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ 0, %l4.body ], [ %l6.next, %l6.body ]
  %v8 = getelementptr float, ptr %s1, i64 %l6.i
  store float 0x0000000000000000, ptr %v8, align 4
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v9 = icmp slt i64 %l6.next, 1
  br i1 %v9, label %l6.body, label %l6.end
l6.end:
  %v11 = icmp slt i64 0, 8
  br i1 %v11, label %l10.body, label %l10.end
l10.body:
  %l10.i = phi i64 [ 0, %l6.end ], [ %l10.next, %l10.body ]
  %v12 = getelementptr float, ptr %s1, i64 0
  %v13 = load float, ptr %v12, align 4
  %v14 = mul i64 %l4.i, 8
  %v15 = add i64 %v14, %l10.i
  %v16 = getelementptr float, ptr %p0, i64 %v15
  %v17 = load float, ptr %v16
  %v18 = fadd contract float %v13, %v17
  store float %v18, ptr %v12, align 4
  %v19 = mul i64 %l4.i, 8
  %v20 = add i64 %v19, %l10.i
  %v21 = fmul contract float %v18, 0x4000000000000000
  %v22 = getelementptr float, ptr %p1, i64 %v20
  %v23 = load float, ptr %v22
  %v24 = fadd contract float %v21, %v23
  %v25 = getelementptr float, ptr %p2, i64 %v20
  store float %v24, ptr %v25
  %l10.next = add nuw nsw i64 %l10.i, 1
  %v26 = icmp slt i64 %l10.next, 8
  br i1 %v26, label %l10.body, label %l10.end
l10.end:
  %l4.next = add nuw nsw i64 %l4.i, 1
  %v27 = icmp slt i64 %l4.next, %size0
  br i1 %v27, label %l4.body, label %l4.end
l4.end:
  %l2.next = add nuw nsw i64 %l2.i, 1
  %v28 = icmp slt i64 %l2.next, %last
  br i1 %v28, label %l2.body, label %l2.end
l2.end:
  ret void
}
