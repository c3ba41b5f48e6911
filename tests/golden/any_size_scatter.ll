; scatter add
; problem   points=1200 costly=0  (an example: each run decides its sizes)
; schedule  lanes=8 tasks=64
; engine    scatter

define void @k(ptr %p0, ptr %p1, ptr %p2, ptr %p3, ptr %sizes, i64 %first, i64 %last) #0 {
entry:
  %size0.at = getelementptr i64, ptr %sizes, i64 0
  %size0 = load i64, ptr %size0.at, !invariant.load !{}
  %size1.at = getelementptr i64, ptr %sizes, i64 1
  %size1 = load i64, ptr %size1.at, !invariant.load !{}
  %v1 = icmp ne ptr %p3, %p0
  %v2 = icmp slt i64 %first, %last
  br i1 %v2, label %l3.body, label %l3.end
l3.body:
  %l3.i = phi i64 [ %first, %entry ], [ %l3.next, %l12.end ]
  br i1 %v1, label %w4.then, label %w4.end
w4.then:
  %v5 = icmp slt i64 0, %size1
  br i1 %v5, label %l6.body, label %l6.end
l6.body:
  %l6.i = phi i64 [ 0, %w4.then ], [ %l6.next, %l6.body ]
  %v7 = mul i64 %l6.i, 8
  %v8 = getelementptr float, ptr %p0, i64 %v7
  %v9 = load <8 x float>, ptr %v8, align 4
  %v10 = getelementptr float, ptr %p3, i64 %v7
  store <8 x float> %v9, ptr %v10, align 4
  %l6.next = add nuw nsw i64 %l6.i, 1
  %v11 = icmp slt i64 %l6.next, %size1
  br i1 %v11, label %l6.body, label %l6.end
l6.end:
  br label %w4.end
w4.end:
  br i1 true, label %l12.body, label %l12.end
l12.body:
  %l12.i = phi i64 [ 0, %w4.end ], [ %l12.next, %w24.end ]
  %v13 = getelementptr i64, ptr %p1, i64 %l12.i
  %v14 = load i64, ptr %v13
  %v15 = icmp slt i64 %v14, 0
  %v16 = add i64 %v14, %size1
  %v17 = select i1 %v15, i64 %v16, i64 %v14
  %v18 = icmp sle i64 0, %v17
  %v19 = icmp slt i64 %v17, %size1
  %v20 = and i1 %v18, %v19
  %v21 = icmp sge i64 %v17, 0
  %v22 = and i1 %v20, %v21
  %v23 = and i1 %v22, %v19
  br i1 %v23, label %w24.then, label %w24.end
w24.then:
  %v25 = mul i64 %v17, 8
  %v26 = getelementptr float, ptr %p3, i64 %v25
  %v27 = load <8 x float>, ptr %v26, align 4
  %v28 = mul i64 %l12.i, 8
  %v29 = getelementptr float, ptr %p2, i64 %v28
  %v30 = load <8 x float>, ptr %v29, align 4
  %v31 = fadd contract <8 x float> %v27, %v30
  store <8 x float> %v31, ptr %v26, align 4
  br label %w24.end
w24.end:
  %l12.next = add nuw nsw i64 %l12.i, 1
  %v32 = icmp slt i64 %l12.next, 4
  br i1 %v32, label %l12.body, label %l12.end
l12.end:
  %l3.next = add nuw nsw i64 %l3.i, 1
  %v33 = icmp slt i64 %l3.next, %last
  br i1 %v33, label %l3.body, label %l3.end
l3.end:
  ret void
}
